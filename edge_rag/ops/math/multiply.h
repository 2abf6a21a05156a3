// The one product of the kernel: rows of 15-bit integers by bytes of pages, summed exactly. Scores are rows of queries
// by keys, outputs are rows of weights by values; both lie in a page so that one loop serves.
#pragma once

#include <cstdint>
#include <type_traits>

#include "page_layout.h"

namespace edge_rag {
namespace {

enum class Operand { kKeys, kValues };

// What rows are multiplied by, from their element `begin` on: `count` stretches of a page, each with `quads` groups of 4
// bytes for every lane, a group `stride` bytes after the one before.
struct Panels {
  int64_t begin;
  const uint8_t* const* data;
  int64_t count;
  int64_t quads;
  int64_t stride;
};

// Calls body(first, size) for parts of [0, total) of nearly equal sizes up to kMost; size is a constant.
template <int kMost, class Body>
EDGE_RAG_INLINE void in_equal_parts(int64_t total, Body&& body) {
  static_assert(kMost <= 3, "a case for every size");
  const int64_t parts = (total + kMost - 1) / kMost;
  int64_t first = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t size = (total - first + parts - part - 1) / (parts - part);
    if (size == 1) body(first, std::integral_constant<int, 1>{});
    if constexpr (kMost >= 2) {
      if (size == 2) body(first, std::integral_constant<int, 2>{});
    }
    if constexpr (kMost >= 3) {
      if (size == 3) body(first, std::integral_constant<int, 3>{});
    }
    first += size;
  }
}

// Calls body with size, which is in [1, kMost], as a constant.
template <int kMost, class Body>
EDGE_RAG_INLINE void with_size(int64_t size, Body&& body) {
  if constexpr (kMost > 1) {
    if (size < kMost) return with_size<kMost - 1>(size, body);
  }
  body(std::integral_constant<int, kMost>{});
}

// One or two runs that cover [0, total), each divided into parts of one size; the sizes differ by at most 1.
struct EqualRuns {
  int64_t total;
  int64_t size;   // of the parts of the first run
  int64_t bound;  // where the second run begins
};

// Parts are of kMost or fewer.
template <int kMost>
EDGE_RAG_INLINE EqualRuns equal_runs(int64_t total) {
  const int64_t parts = (total + kMost - 1) / kMost;
  const int64_t size = (total + parts - 1) / parts;
  return {total, size, (total - parts * (size - 1)) * size};
}

// Calls body(begin, end, size) for each run; size is a constant.
template <int kMost, class Body>
EDGE_RAG_INLINE void for_each_run(const EqualRuns& runs, Body&& body) {
  with_size<kMost>(runs.size, [&](auto size) EDGE_RAG_LAMBDA { body(int64_t{0}, runs.bound, size); });
  if (runs.bound == runs.total) return;
  with_size<kMost>(runs.size - 1, [&](auto size) EDGE_RAG_LAMBDA { body(runs.bound, runs.total, size); });
}

// Calls body(first, size) for parts that cover [0, total), each of kMost but the last, which is the smallest power of
// two that holds the rest; size is a constant.
template <int kMost, class Body>
EDGE_RAG_INLINE void in_powers_of_two(int64_t total, Body&& body) {
  static_assert((kMost & (kMost - 1)) == 0, "parts are powers of two");
  int64_t first = 0;
  for (; total - first > kMost / 2; first += kMost) body(first, std::integral_constant<int, kMost>{});
  if constexpr (kMost > 1) {
    if (first < total) {
      in_powers_of_two<kMost / 2>(total - first, [&](int64_t rest, auto size) EDGE_RAG_LAMBDA {
        body(first + rest, size);
      });
    }
  }
}

// What rows are multiplied by in a step: a quad of every lane, or two that are `stride` bytes apart.
template <class V, Operand kOperand>
EDGE_RAG_INLINE typename V::Panel load_panel(const uint8_t* from, int64_t stride) {
  if constexpr (V::kStepQuads == 1) {
    return kOperand == Operand::kKeys ? V::load_keys(from) : V::load_values(from);
  } else {
    return kOperand == Operand::kKeys ? V::load_keys(from, from + stride) : V::load_values(from, from + stride);
  }
}

// Adds the products of one pass over the rows' elements. Both loops run at least once.
template <class V, Operand kOperand, int64_t kElements, int R, int C, int kPass>
EDGE_RAG_INLINE void add_pass(const uint8_t* rows, const Panels& panels, int64_t lane, typename V::Sum (&sums)[R][C]) {
  constexpr int64_t kQuads = V::kStepQuads;
  int64_t at = panels.begin;
  int64_t p = 0;
  do {
    const uint8_t* from = panels.data[p] + lane * kQuad;
    int64_t quad = panels.quads;
    do {
      typename V::Panel panel[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const uint8_t* bytes = from + c * kLanes * kQuad;
        panel[c] = load_panel<V, kOperand>(bytes, panels.stride);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename V::Factor factor = V::factor(rows + r * 2 * kElements, kElements, kPass, at);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          sums[r][c] = kOperand == Operand::kKeys ? V::add_key_products(sums[r][c], panel[c], factor)
                                                  : V::add_value_products(sums[r][c], panel[c], factor);
        }
      }
      at += kQuads * kQuad;
      from += kQuads * panels.stride;
    } while ((quad -= kQuads) > 0);
  } while (++p < panels.count);
}

// Multiplies R rows, each with room for kElements elements, by C vectors of lanes from `lane` on; R * C sums stay in
// registers until they are written to out[row * C + vector]. For keys, row_sums are the sums of each row's elements:
// what they add because a key's byte is biased is taken off. Not inlined, so that there is one loop for the compiler to
// find registers for.
template <class V, Operand kOperand, int64_t kElements, int R, int C>
__attribute__((noinline)) void multiply(const uint8_t* rows, const int32_t* row_sums, const Panels& panels,
                                        int64_t lane, typename V::Ints* out) {
  // A register holds fewer lanes where each has the sums of several digits: then they are multiplied part after part.
  for (int64_t part = 0; part < V::kMatrixRows; ++part, lane += kLanes / V::kMatrixRows) {
    typename V::Sum sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sums[r][c] = kOperand == Operand::kKeys ? V::start_keys(row_sums[r]) : V::zero();
    }
    add_pass<V, kOperand, kElements, R, C, 0>(rows, panels, lane, sums);
    if constexpr (V::kPasses > 1) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sums[r][c] = V::shift(sums[r][c]);
      }
      add_pass<V, kOperand, kElements, R, C, 1>(rows, panels, lane, sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        if constexpr (V::kMatrixRows == 1) {
          out[r * C + c] = V::finish(sums[r][c]);
        } else {
          V::finish(sums[r][c], part, out[r * C + c]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace edge_rag
