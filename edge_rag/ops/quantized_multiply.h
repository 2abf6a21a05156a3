// Products of activations with quantized matrices. Weights are the unsigned operand of the dot-product instruction and
// activations the signed one, so that neither needs to be changed; what zero points add is taken off once a block.
//
// Few rows: the weights are read once, from memory, and a line of them is multiplied with all rows. Many rows: the
// nibbles of a block are unpacked once for a strip of rows; the sums of a strip stay in the first-level cache.
#pragma once

#include <cstdint>
#include <cstring>

#include "exponential.h"
#include "multiply.h"
#include "quantize.h"
#include "quantized_kernels.h"

namespace edge_rag {
namespace {

// Panels of a strip: with a gate, the gate and its operand.
constexpr int64_t kPanelPair = 2;

// Blocks up to this are unpacked, for at least as many rows as below.
constexpr int64_t kUnpackedBlockRows = 256;
constexpr int64_t kUnpackFromRows = 24;

// Elements past the last of a block are zeros up to a whole number of vectors; reads no more than `size` of `in`.
template <class V>
EDGE_RAG_INLINE typename V::Floats load_padded(const float* in, int64_t i, int64_t size) {
  if (i + kLanes <= size) return V::load(in + i);
  alignas(64) float rest[kLanes] = {};
  for (int64_t j = i; j < size; ++j) rest[j - i] = in[j];
  return V::load(rest);
}

// Quantizes `size` elements into size rounded up to kLanes integers; returns their sum.
template <class V>
EDGE_RAG_INLINE int32_t quantize_block(const float* in, int64_t size, int8_t* integers, float& scale) {
  auto most = V::set(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) most = V::larger_magnitude(most, load_padded<V>(in, i, size));
  const Quantization how = quantization_of(V::largest_magnitude(most), 127.0f);
  scale = how.scale;
  auto* const bytes = reinterpret_cast<uint8_t*>(integers);
  if (how.zeros()) {
    std::memset(bytes, 0, static_cast<size_t>((size + kLanes - 1) / kLanes * kLanes));
    return 0;
  }
  const auto inverse = V::set(how.inverse);
  auto sum = V::round(V::set(0.0f));
  for (int64_t i = 0; i < size; i += kLanes) {
    const auto integer = V::round(V::multiply(load_padded<V>(in, i, size), inverse));
    sum = V::add(sum, integer);
    V::store_bytes(bytes + i, integer);
  }
  return V::total(sum);
}

template <class V>
void quantize_activations(const float* in, const QuantizedMatrix& matrix, int64_t begin, int64_t end,
                          const Activations& out) {
  const int32_t bias = matrix.bits == 4 ? V::template Products<4>::kBias : V::template Products<8>::kBias;
  const int32_t factor = matrix.zero_points == nullptr ? bias - matrix.middle() : 1;
  for (int64_t row = begin; row < end; ++row) {
    const float* from = in + row * matrix.rows;
    for (int64_t block = 0; block < matrix.blocks(); ++block) {
      const int64_t first = block * matrix.block_rows;
      const int64_t rest = matrix.rows - first;
      const int64_t at = out.at(block, row);
      const int64_t size = rest < matrix.block_rows ? rest : matrix.block_rows;
      out.offsets[at] =
          factor * quantize_block<V>(from + first, size, out.integers + at * out.stride, out.scales[at]);
    }
  }
}

// One block of two panels, and the rows of a strip whose sums it is added to.
struct BlockProduct {
  const int8_t* integers;  // of the strip's first row
  int64_t stride;
  const float* activation_scales;
  const int32_t* offsets;
  const uint8_t* weights[kPanelPair];
  const float* scales[kPanelPair];
  const uint8_t* zero_points[kPanelPair];
  int64_t lines;  // of 64 bytes of weights, at least 1
  float* sums;    // [strip rows][2][lanes]
};

// How a line of weights lies in memory: bytes, a quad; or the nibbles of two.
enum class Line { kBytes, kNibbles };

template <class V, int kBits, Line kLine, bool kZeroPoints, int R, int C>
__attribute__((noinline)) void add_product(const BlockProduct& block, int64_t row, int64_t panel) {
  using P = typename V::template Products<kBits>;
  typename P::Sum sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[r][c] = P::start(kZeroPoints ? 0 : block.offsets[row + r]);
  }
  const int8_t* rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = block.integers + (row + r) * block.stride;
  const uint8_t* weights[C];
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) weights[c] = block.weights[panel + c];

  int64_t line = 0;
  do {
    constexpr int64_t kQuads = kLine == Line::kBytes ? 1 : 2;
#pragma GCC unroll 2
    for (int64_t q = 0; q < kQuads; ++q) {
      typename P::Weights panels[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const uint8_t* from = weights[c] + line * kLineBytes;
        if constexpr (kLine == Line::kBytes) {
          panels[c] = P::load(from);
        } else {
          panels[c] = q == 0 ? P::load_low(from) : P::load_high(from);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename P::Factor factor = P::factor(rows[r] + (line * kQuads + q) * kQuad);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sums[r][c] = P::add(sums[r][c], panels[c], factor);
      }
    }
  } while (++line < block.lines);

#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    const auto scales = V::load(block.scales[panel + c]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      auto integers = P::finish(sums[r][c]);
      if constexpr (kZeroPoints) {
        const int32_t sum = block.offsets[row + r];
        const auto zeros = V::add(V::load_bytes(block.zero_points[panel + c]), -P::kBias);
        integers = V::add(integers, V::multiply(zeros, -sum));
      }
      const auto scale = V::multiply(V::set(block.activation_scales[row + r]), scales);
      float* sum = block.sums + ((row + r) * kPanelPair + panel + c) * kLanes;
      V::store(sum, V::fused(V::to_float(integers), scale, V::load(sum)));
    }
  }
}

template <class V, int kBits, Line kLine, bool kZeroPoints>
EDGE_RAG_INLINE void add_block(const BlockProduct& block, int64_t rows) {
  using P = typename V::template Products<kBits>;
  in_powers_of_two<P::kRows>(rows, [&](int64_t row, auto count) EDGE_RAG_LAMBDA {
    for (int64_t panel = 0; panel < kPanelPair; panel += P::kColumns) {
      add_product<V, kBits, kLine, kZeroPoints, decltype(count)::value, P::kColumns>(block, row, panel);
    }
  });
}

// x / (1 + e^-x) with a relative error below 1e-5; both branches of the sign keep the exponential in (0, 1].
template <class V>
EDGE_RAG_INLINE typename V::Floats silu(typename V::Floats x) {
  const auto minus = V::subtract(V::set(0.0f), x);
  const auto distance = V::larger(x, minus);
  const auto power = power_of_two<V>(V::multiply(distance, V::set(-1.44269504088896341f)));
  const auto numerator = V::multiply(x, V::by_sign(x, power, V::set(1.0f)));
  return V::divide(numerator, V::add(V::set(1.0f), power));
}

template <class V>
EDGE_RAG_INLINE void store_lanes(float* to, int64_t lanes, typename V::Floats x) {
  if (lanes >= kLanes) return V::store(to, x);
  alignas(64) float values[kLanes];
  V::store(values, x);
  for (int64_t i = 0; i < lanes; ++i) to[i] = values[i];
}

template <class V>
EDGE_RAG_INLINE void write_strip(const float* sums, int64_t rows, int64_t first_panel, float* to,
                                 const ProductOutput& out) {
  for (int64_t r = 0; r < rows; ++r, sums += kPanelPair * kLanes, to += out.columns) {
    if (out.gated) {
      const int64_t column = first_panel / kPanelPair * kLanes;
      const auto value = V::multiply(silu<V>(V::load(sums)), V::load(sums + kLanes));
      store_lanes<V>(to + column, out.columns - column, value);
      continue;
    }
    for (int64_t panel = 0; panel < kPanelPair; ++panel) {
      const int64_t column = (first_panel + panel) * kLanes;
      if (column < out.columns) store_lanes<V>(to + column, out.columns - column, V::load(sums + panel * kLanes));
    }
  }
}

template <class V, int kBits, bool kZeroPoints>
void multiply_part(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                   const ProductOutput& out) {
  constexpr int64_t kUnpackedBytes = kBits == 4 ? kUnpackedBlockRows * kLanes : 1;
  alignas(64) uint8_t unpacked[kPanelPair][kUnpackedBytes];
  alignas(64) float sums[kStripRows * kPanelPair * kLanes];
  const bool unpacks = kBits == 4 && matrix.block_rows <= kUnpackedBlockRows;
  for (int64_t strip = part.begin; strip < part.end; strip += kStripRows) {
    const int64_t rest = part.end - strip;
    const int64_t rows = rest < kStripRows ? rest : kStripRows;
    for (int64_t first = part.first_panel; first < part.last_panel; first += kPanelPair) {
      // An odd panel at the end is multiplied twice and written once.
      const int64_t panels[kPanelPair] = {first, first + 1 < matrix.panels ? first + 1 : first};
      std::memset(sums, 0, static_cast<size_t>(padded_rows(rows) * kPanelPair * kLanes) * sizeof(float));
      for (int64_t b = 0; b < matrix.blocks(); ++b) {
        const int64_t at = activations.at(b, strip);
        BlockProduct block{};
        block.integers = activations.integers + at * activations.stride;
        block.stride = activations.stride;
        block.activation_scales = activations.scales + at;
        block.offsets = activations.offsets + at;
        block.lines = matrix.rows_of_block(b) / (kBits == 4 ? 2 * kQuad : kQuad);
        block.sums = sums;
        for (int64_t p = 0; p < kPanelPair; ++p) {
          block.weights[p] = matrix.block_weights(panels[p], b);
          block.scales[p] = matrix.scales + matrix.at_scale(panels[p], b);
          if (kZeroPoints) block.zero_points[p] = matrix.zero_points + matrix.at_scale(panels[p], b);
        }
        if constexpr (kBits == 8) {
          add_block<V, kBits, Line::kBytes, kZeroPoints>(block, rows);
        } else if (unpacks && rows >= kUnpackFromRows) {
          for (int64_t p = 0; p < kPanelPair; ++p) {
            for (int64_t i = 0; i < block.lines; ++i) {
              V::split_nibbles(block.weights[p] + i * kLineBytes, unpacked[p] + 2 * i * kLineBytes);
            }
            block.weights[p] = unpacked[p];
          }
          block.lines *= 2;
          add_block<V, kBits, Line::kBytes, kZeroPoints>(block, rows);
        } else {
          add_block<V, kBits, Line::kNibbles, kZeroPoints>(block, rows);
        }
      }
      write_strip<V>(sums, rows, first, out.data + strip * out.columns, out);
    }
  }
}

template <class V>
constexpr QuantizedKernels make_quantized_kernels() {
  return {quantize_activations<V>, [](const Activations& activations, const QuantizedMatrix& matrix,
                                      const ProductPart& part, const ProductOutput& out) {
            const bool zero_points = matrix.zero_points != nullptr;
            if (matrix.bits == 4) {
              zero_points ? multiply_part<V, 4, true>(activations, matrix, part, out)
                          : multiply_part<V, 4, false>(activations, matrix, part, out);
            } else {
              zero_points ? multiply_part<V, 8, true>(activations, matrix, part, out)
                          : multiply_part<V, 8, false>(activations, matrix, part, out);
            }
          }};
}

}  // namespace
}  // namespace edge_rag
