// Attention within whole sequences, in floats, and layer normalization.
#pragma once

#include <cmath>
#include <cstdint>

#include "encoder_kernels.h"
#include "exponential.h"
#include "multiply.h"
#include "quantize.h"

namespace edge_rag {
namespace {

// One head of one sequence while it is worked on.
struct HeadRoom {
  int64_t tokens;
  int64_t size;    // of the head
  int64_t panels;  // of 16 keys
  float* keys;     // [panels][size][kLanes], times the scale of the scores in powers of two
  float* values;   // [tokens][size]
  float* queries;  // [kQueryRows][size]
  float* scores;   // [kQueryRows][panels * kLanes]

  EDGE_RAG_INLINE int64_t width() const { return panels * kLanes; }
};

// A head's rows lie a page or more apart: the processor does not see ahead by itself.
EDGE_RAG_INLINE void prefetch_row(const float* row, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) __builtin_prefetch(row + i);
}

template <class V>
EDGE_RAG_INLINE HeadRoom fill_room(const PackedHeads& heads, const SequenceHead& part) {
  HeadRoom room{};
  room.tokens = part.end - part.begin;
  room.size = heads.head_size;
  room.panels = (room.tokens + kLanes - 1) / kLanes;
  room.keys = part.room;
  room.values = room.keys + room.width() * room.size;
  room.queries = room.values + room.width() * room.size;
  room.scores = room.queries + kQueryRows * room.size;

  const int64_t stride = 3 * heads.width();
  const float* keys = heads.data + part.begin * stride + heads.width() + part.head * room.size;
  const float factor = heads.scale * kLog2E;
  for (int64_t panel = 0; panel < room.panels; ++panel) {
    float* to = room.keys + panel * room.size * kLanes;
    const int64_t rest = room.tokens - panel * kLanes;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      // A lane without a token repeats the last one: what becomes of it is never used.
      const float* key = keys + (panel * kLanes + (lane < rest ? lane : rest - 1)) * stride;
      prefetch_row(key + kLanes * stride, room.size);
      prefetch_row(key + heads.width(), room.size);
      for (int64_t i = 0; i < room.size; ++i) to[i * kLanes + lane] = key[i] * factor;
    }
  }
  const float* values = keys + heads.width();
  for (int64_t t = 0; t < room.tokens; ++t) {
    for (int64_t i = 0; i < room.size; i += kLanes) {
      V::store(room.values + t * room.size + i, V::load(values + t * stride + i));
    }
  }
  return room;
}

// Products of R rows of floats with C panels of 16 columns, in which consecutive elements of a column are `step` floats
// apart and panels `apart`. What becomes of them is up to finish(r, c, sums).
template <class V, int R, int C, class Finish>
EDGE_RAG_INLINE void multiply_floats(const float* rows, int64_t stride, const float* panels, int64_t step, int64_t apart,
                                     int64_t elements, Finish&& finish) {
  typename V::Floats sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[r][c] = V::set(0.0f);
  }
  for (int64_t i = 0; i < elements; ++i) {
    typename V::Floats columns[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) columns[c] = V::load(panels + i * step + c * apart);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto factor = V::set(rows[r * stride + i]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sums[r][c] = V::fused(factor, columns[c], sums[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) finish(r, c, sums[r][c]);
  }
}

// Scores of R queries with C panels of keys.
template <class V, int R, int C>
__attribute__((noinline)) void score(const HeadRoom& room, int64_t panel) {
  const int64_t apart = room.size * kLanes;
  multiply_floats<V, R, C>(room.queries, room.size, room.keys + panel * apart, kLanes, apart, room.size,
                           [&](int r, int c, const typename V::Floats& sum) EDGE_RAG_LAMBDA {
                             V::store(room.scores + r * room.width() + (panel + c) * kLanes, sum);
                           });
}

// The first `rows` of R weighted sums of values, elements [at, at + C * 16), each times its own factor.
template <class V, int R, int C>
__attribute__((noinline)) void weigh(const HeadRoom& room, const float* factors, int64_t at, int64_t rows,
                                     float* output, int64_t stride) {
  multiply_floats<V, R, C>(room.scores, room.width(), room.values + at, room.size, kLanes, room.tokens,
                           [&](int r, int c, const typename V::Floats& sum) EDGE_RAG_LAMBDA {
                             if (r >= rows) return;
                             V::store(output + r * stride + at + c * kLanes, V::multiply(sum, V::set(factors[r])));
                           });
}

// Scores of keys that a token does not attend to: below all others by more than weights can tell.
constexpr float kHidden = -1e30f;

// The panels of keys, and their values, that tokens [begin, end) attend to: all of them, or those of their windows.
EDGE_RAG_INLINE HeadRoom seen_by(const HeadRoom& room, int64_t begin, int64_t end, int64_t window) {
  HeadRoom seen = room;
  if (window == 0) return seen;
  const int64_t first = (begin > window ? begin - window : 0) / kLanes;
  const int64_t stop = end + window < room.tokens ? end + window : room.tokens;
  seen.keys += first * kLanes * room.size;
  seen.values += first * kLanes * room.size;
  seen.tokens = stop - first * kLanes;
  seen.panels = (seen.tokens + kLanes - 1) / kLanes;
  return seen;
}

// Sets the scores of one token but for those of its window; `position` is its own among the keys of `seen`.
EDGE_RAG_INLINE void set_far(int64_t position, int64_t window, const HeadRoom& seen, float value, float* scores) {
  const int64_t first = position > window ? position - window : 0;
  const int64_t end = position + window + 1 < seen.tokens ? position + window + 1 : seen.tokens;
  for (int64_t i = 0; i < first; ++i) scores[i] = value;
  for (int64_t i = end; i < seen.width(); ++i) scores[i] = value;
}

// Turns a row of scores into weights that are not yet divided by their sum; returns one over the sum.
template <class V>
EDGE_RAG_INLINE float exponentiate(float* scores, const HeadRoom& room) {
  auto most = V::load(scores);
  for (int64_t i = kLanes; i < room.width(); i += kLanes) most = V::larger(most, V::load(scores + i));
  const auto maximum = V::set(V::largest(most));
  auto sum = V::set(0.0f);
  for (int64_t i = 0; i < room.width(); i += kLanes) {
    const auto power = power_of_two<V>(V::subtract(V::load(scores + i), maximum));
    V::store(scores + i, power);
    sum = V::add(sum, V::first_lanes(room.tokens - i, power, V::set(0.0f)));
  }
  return 1.0f / V::total(sum);
}

// Copies R queries; those past the last of the sequence repeat it.
template <class V, int R>
EDGE_RAG_INLINE void take_queries(const float* queries, int64_t stride, int64_t rows, const HeadRoom& room) {
  for (int64_t r = 0; r < R; ++r) {
    const float* from = queries + (r < rows ? r : rows - 1) * stride;
    prefetch_row(from + R * stride, room.size);
    for (int64_t i = 0; i < room.size; i += kLanes) V::store(room.queries + r * room.size + i, V::load(from + i));
  }
}

template <class V>
void attend_sequence(const PackedHeads& heads, const SequenceHead& part) {
  static_assert(V::kFloatRows <= kQueryRows, "there is room for the rows of a tile");
  const HeadRoom room = fill_room<V>(heads, part);
  const int64_t stride = 3 * heads.width();
  const float* queries = heads.data + part.begin * stride + part.head * room.size;
  float* output = heads.output + part.begin * heads.width() + part.head * room.size;
  in_powers_of_two<V::kFloatRows>(room.tokens, [&](int64_t first, auto rows) EDGE_RAG_LAMBDA {
    constexpr int kRows = decltype(rows)::value;
    const int64_t rest = room.tokens - first;
    const HeadRoom seen = seen_by(room, first, first + kRows, heads.window);
    take_queries<V, kRows>(queries + first * stride, stride, rest, room);
    in_equal_parts<V::kFloatColumns>(seen.panels, [&](int64_t panel, auto columns) EDGE_RAG_LAMBDA {
      score<V, kRows, decltype(columns)::value>(seen, panel);
    });
    float factors[kRows];
    for (int r = 0; r < kRows; ++r) {
      float* scores = seen.scores + r * seen.width();
      if (heads.window == 0) {
        factors[r] = exponentiate<V>(scores, seen);
        continue;
      }
      const int64_t position = first + (r < rest ? r : rest - 1) - (seen.values - room.values) / room.size;
      set_far(position, heads.window, seen, kHidden, scores);
      factors[r] = exponentiate<V>(scores, seen);
      set_far(position, heads.window, seen, 0.0f, scores);  // their weights would make sums denormal, which is slow
    }
    in_equal_parts<V::kFloatColumns>(room.size / kLanes, [&](int64_t vector, auto columns) EDGE_RAG_LAMBDA {
      weigh<V, kRows, decltype(columns)::value>(seen, factors, vector * kLanes, rest, output + first * heads.width(),
                                                heads.width());
    });
  });
}

template <class V>
void normalize(const NormRows& rows, int64_t begin, int64_t end) {
  const auto count = static_cast<float>(rows.columns);
  for (int64_t row = begin; row < end; ++row) {
    const float* data = rows.data + row * rows.columns;
    float* output = rows.output + row * rows.columns;
    auto sum = V::set(0.0f);
    for (int64_t i = 0; i < rows.columns; i += kLanes) {
      auto x = V::load(data + i);
      if (rows.skip != nullptr) x = V::add(x, V::load(rows.skip + row * rows.columns + i));
      V::store(output + i, x);
      sum = V::add(sum, x);
    }
    const auto mean = V::set(V::total(sum) / count);
    auto squares = V::set(0.0f);
    for (int64_t i = 0; i < rows.columns; i += kLanes) {
      const auto x = V::subtract(V::load(output + i), mean);
      squares = V::fused(x, x, squares);
    }
    const auto inverse = V::set(1.0f / std::sqrt(V::total(squares) / count + rows.epsilon));
    for (int64_t i = 0; i < rows.columns; i += kLanes) {
      const auto x = V::multiply(V::subtract(V::load(output + i), mean), inverse);
      V::store(output + i, V::fused(x, V::load(rows.scale + i), V::load(rows.bias + i)));
    }
  }
}

template <class V>
constexpr EncoderKernels make_encoder_kernels() {
  return {attend_sequence<V>, normalize<V>};
}

}  // namespace
}  // namespace edge_rag
