// Products of activations with quantized matrices. Weights are the unsigned operand of the dot-product instruction and
// activations the signed one, so that neither needs to be changed; what zero points add is taken off once a block.
//
// Few rows: the weights are read once, from memory, and a line of them is multiplied with all rows. Many rows: the
// nibbles of a block are unpacked once for a strip of rows; the sums of a strip stay in the first-level cache.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exponential.h"
#include "multiply.h"
#include "quantize.h"
#include "quantized_kernels.h"

namespace edge_rag {
namespace {

// Panels that are multiplied together; with a gate, two times the gate and its operand.
constexpr int64_t kPanelGroup = kPartPanels;

// From so many rows on, arithmetic is the limit and not memory.
constexpr int64_t kArithmeticRows = 13;

// Scales and minima are fetched so many blocks before their use.
constexpr int64_t kScalesAhead = 2;

// Larger blocks are not unpacked: their bytes would not stay in the first-level cache.
constexpr int64_t kUnpackedBlockRows = 256;

EDGE_RAG_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Elements past the last of a block are zeros up to a whole number of vectors; reads no more than `size` of `in`.
template <class V>
EDGE_RAG_INLINE typename V::Floats load_padded(const float* in, int64_t i, int64_t size) {
  if (i + kLanes <= size) return V::load(in + i);
  alignas(64) float rest[kLanes] = {};
  for (int64_t j = i; j < size; ++j) rest[j - i] = in[j];
  return V::load(rest);
}

// Stores integers [i, i + kLanes) of a row's block. For matrix instructions, 8 of one row follow 8 of the other.
template <class V>
EDGE_RAG_INLINE void store_integers(int8_t* integers, int64_t i, const typename V::Ints& x) {
  auto* const to = reinterpret_cast<uint8_t*>(integers) + V::kMatrixRows * i;
  if constexpr (V::kMatrixRows == 1) {
    V::store_bytes(to, x);
  } else {
    V::store_bytes_apart(to, x);
  }
}

// Quantizes `size` elements into size rounded up to kLanes integers; returns their sum.
template <class V>
EDGE_RAG_INLINE int32_t quantize_block(const float* in, int64_t size, int8_t* integers, float& scale) {
  const int64_t whole = size / kLanes * kLanes;
  auto most = V::set(0.0f);
  for (int64_t i = 0; i < whole; i += kLanes) most = V::larger_magnitude(most, V::load(in + i));
  if (whole < size) most = V::larger_magnitude(most, load_padded<V>(in, whole, size));
  const Quantization how = quantization_of(V::largest_magnitude(most), 127.0f);
  scale = how.scale;
  if (how.zeros()) {
    for (int64_t i = 0; i < size; i += kLanes) store_integers<V>(integers, i, V::round(V::set(0.0f)));
    return 0;
  }
  const auto inverse = V::set(how.inverse);
  auto sum = V::round(V::set(0.0f));
  const auto quantize = [&](const typename V::Floats& x, int64_t i) EDGE_RAG_LAMBDA {
    const auto integer = V::round(V::multiply(x, inverse));
    sum = V::add(sum, integer);
    store_integers<V>(integers, i, integer);
  };
  for (int64_t i = 0; i < whole; i += kLanes) quantize(V::load(in + i), i);
  if (whole < size) quantize(load_padded<V>(in, whole, size), whole);
  return V::total(sum);
}

template <class V>
void quantize_activations(const float* in, const QuantizedMatrix& matrix, int64_t begin, int64_t end,
                          const Activations& out) {
  const int32_t bias = matrix.bits == 4 ? V::template Products<4>::kBias : V::template Products<8>::kBias;
  const Zero zero = matrix.zero();
  const int32_t factor = zero == Zero::kPoints ? 1 : zero == Zero::kMinima ? bias : bias - matrix.middle();
  for (int64_t row = begin; row < end; ++row) {
    const float* from = in + row * matrix.rows;
    for (int64_t block = 0; block < matrix.blocks; ++block) {
      const int64_t first = block * matrix.block_rows;
      const int64_t size = smaller(matrix.rows - first, matrix.block_rows);
      const int64_t at = out.at(block, row);
      const int64_t second = row % V::kMatrixRows;
      int8_t* const integers = out.integers + (at - second) * out.stride + second * kRowPadding;
      const int32_t sum = quantize_block<V>(from + first, size, integers, out.scales[at]);
      out.offsets[at] = factor * sum;
      out.sums[at] = static_cast<float>(sum) * out.scales[at];
    }
  }
}

// One block of a group of panels, and the rows of a strip whose sums it is added to.
struct BlockProduct {
  const int8_t* integers;  // of the strip's first row
  int64_t stride;
  const float* activation_scales;
  const float* activation_sums;
  const int32_t* offsets;
  const uint8_t* weights[kPanelGroup];
  const uint8_t* scales[kPanelGroup];
  const uint8_t* zeros[kPanelGroup];  // zero points or minima
  const float* scale_factors[kPanelGroup];
  const float* minimum_factors[kPanelGroup];
  int64_t lines;                     // of 64 bytes of weights, at least 1
  const uint8_t* next[kPanelGroup];  // weights of the block that comes next
  int64_t next_lines;                // of them, to be fetched for every R rows
  float* sums;    // [strip rows][group][lanes]
  const float* output;  // of the strip's first row where it is about to be written, otherwise null
  int64_t output_columns;
  int64_t output_width;  // what the group writes
};

// Fetches what is about to be written while there is arithmetic to hide it behind.
template <int R>
EDGE_RAG_INLINE void prefetch_output(const BlockProduct& block, int64_t row) {
  for (int64_t r = row; r < row + R; ++r) {
    const float* const output = block.output + r * block.output_columns;
    for (int64_t i = 0; i < block.output_width; i += kLanes) __builtin_prefetch(output + i, 1);
  }
}

// How a line of weights lies in memory: bytes, a quad; the nibbles of two; or bytes as the build rewrites them.
enum class Line { kBytes, kNibbles, kRewritten };

// When the next block's weights are fetched: a line for a line, where the rows are few and memory is the limit; or some
// for every R rows, where arithmetic is.
enum class Fetch { kByLine, kByRows };

// Scales or minima of a block of a panel.
template <class V, Stored kStored>
EDGE_RAG_INLINE typename V::Floats load_stored(const uint8_t* from, const float* factors) {
  if constexpr (kStored == Stored::kFloat) return V::load(reinterpret_cast<const float*>(from));
  if constexpr (kStored == Stored::kHalf) return V::load_halves(from);
  if constexpr (kStored == Stored::kByte) return V::multiply(V::to_float(V::load_bytes(from)), V::load(factors));
}

// How a build adds products up: in its sums right away; or, where it has short sums, so many quads at a time in those,
// which are added to the sums then.
template <class P, class = void>
struct ShortSums {
  using Sum = typename P::Sum;
  static EDGE_RAG_INLINE int64_t lines(int64_t left, int64_t) { return left; }
  static EDGE_RAG_INLINE Sum begin(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Sum end(const Sum&, const Sum& part) { return part; }
};

template <class P>
struct ShortSums<P, std::void_t<decltype(P::kShortQuads)>> {
  using Sum = typename P::Sum;
  static EDGE_RAG_INLINE int64_t lines(int64_t left, int64_t quads) { return smaller(left, P::kShortQuads / quads); }
  static EDGE_RAG_INLINE Sum begin(const Sum&) { return P::start(0); }
  static EDGE_RAG_INLINE Sum end(const Sum& sum, const Sum& part) { return P::add_short(sum, part); }
};

// The weights of a step: of step `step` of a line, or of as many lines as a step has quads.
template <class V, int kBits, Line kLine>
EDGE_RAG_INLINE auto load_weights(const uint8_t* from, [[maybe_unused]] int64_t step) {
  using P = typename V::template Products<kBits>;
  if constexpr (kLine == Line::kRewritten) {
    return P::load_rewritten(from);
  } else if constexpr (kLine == Line::kBytes) {
    return P::load(from);
  } else if constexpr (V::kStepQuads == 1) {
    return step == 0 ? P::load_low(from) : P::load_high(from);
  } else {
    return P::load_nibbles(from);
  }
}

// Multiplies rows [begin, end), R at a time, by C panels from `panel` on. Not inlined, so that there is one loop for the
// compiler to find registers for.
template <class V, int kBits, Line kLine, Fetch kFetch, Zero kZero, Stored kStored, int R, int C>
__attribute__((noinline)) void add_product(const BlockProduct& block, int64_t begin, int64_t end, int64_t panel) {
  using P = typename V::template Products<kBits>;
  constexpr int64_t kMatrixRows = V::kMatrixRows;
  constexpr int64_t kQuads = kLine == Line::kNibbles ? 2 : 1;  // of a line
  constexpr int64_t kLines = kLine == Line::kNibbles ? 1 : V::kStepQuads;  // of a turn of the inner loop
  constexpr int kSums = R / kMatrixRows;
  constexpr bool kUncorrected = kZero == Zero::kPoints || (kZero == Zero::kMinima && P::kBias == 0);
  const int64_t stride = block.stride;
  const int64_t lines = block.lines;
  const float* const activation_scales = block.activation_scales;
  const int32_t* const offsets = block.offsets;
  const uint8_t* weights[C];
  const uint8_t* scales[C];
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    weights[c] = block.weights[panel + c];
    scales[c] = block.scales[panel + c];
  }
  const int64_t ahead = block.next[panel] - block.weights[panel];
  int64_t fetched = begin / R * block.next_lines * kLineBytes;
  float* out = block.sums + (begin * kPanelGroup + panel) * kLanes;
  for (int64_t row = begin; row < end; row += R, out += R * kPanelGroup * kLanes) {
    if (panel == 0 && block.output != nullptr) prefetch_output<R>(block, row);
    if constexpr (kFetch == Fetch::kByRows) {
      for (int64_t i = 0; i < block.next_lines; ++i, fetched += kLineBytes) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) __builtin_prefetch(block.next[panel + c] + fetched);
      }
    }
    typename P::Sum sums[kSums][C];
#pragma GCC unroll 8
    for (int r = 0; r < kSums; ++r) {
      const int64_t at = row + r * kMatrixRows;
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        if constexpr (kMatrixRows == 1) {
          sums[r][c] = P::start(kUncorrected ? 0 : offsets[at]);
        } else {
          sums[r][c] = P::start(kUncorrected ? 0 : offsets[at], kUncorrected ? 0 : offsets[at + 1]);
        }
      }
    }
    const int8_t* rows[kSums];
#pragma GCC unroll 8
    for (int r = 0; r < kSums; ++r) rows[r] = block.integers + (row + r * kMatrixRows) * stride;

    int64_t line = 0;
    do {
      const int64_t end_line = line + ShortSums<P>::lines(lines - line, kQuads);
      typename P::Sum parts[kSums][C];
#pragma GCC unroll 8
      for (int r = 0; r < kSums; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) parts[r][c] = ShortSums<P>::begin(sums[r][c]);
      }
      do {
#pragma GCC unroll 2
        for (int64_t q = 0; q < kQuads * kLines / V::kStepQuads; ++q) {
          typename P::Weights panels[C];
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) {
            const uint8_t* from = weights[c] + line * kLineBytes;
            if (kFetch == Fetch::kByLine && q == 0) {
              for (int64_t i = 0; i < kLines; ++i) __builtin_prefetch(from + ahead + i * kLineBytes);
            }
            panels[c] = load_weights<V, kBits, kLine>(from, q);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kSums; ++r) {
            const typename P::Factor factor = P::factor(rows[r] + (line * kQuads + q) * kQuad * kMatrixRows);
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) parts[r][c] = P::add(parts[r][c], panels[c], factor);
          }
        }
      } while ((line += kLines) < end_line);
#pragma GCC unroll 8
      for (int r = 0; r < kSums; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sums[r][c] = ShortSums<P>::end(sums[r][c], parts[r][c]);
      }
    } while (line < lines);

#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const auto column_scales = load_stored<V, kStored>(scales[c], block.scale_factors[panel + c]);
      [[maybe_unused]] typename V::Floats minima;
      if constexpr (kZero == Zero::kMinima) {
        minima = load_stored<V, kStored>(block.zeros[panel + c], block.minimum_factors[panel + c]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        typename V::Ints integers;
        if constexpr (kMatrixRows == 1) {
          integers = P::finish(sums[r][c]);
        } else {
          integers = P::finish(sums[r / kMatrixRows][c], r % kMatrixRows);
        }
        if constexpr (kZero == Zero::kPoints) {
          const auto zeros = V::add(V::load_bytes(block.zeros[panel + c]), -P::kBias);
          integers = V::add(integers, V::multiply(zeros, -offsets[row + r]));
        }
        const auto scale = V::multiply(V::set(activation_scales[row + r]), column_scales);
        float* to = out + (r * kPanelGroup + c) * kLanes;
        auto sum = V::fused(V::to_float(integers), scale, V::load(to));
        if constexpr (kZero == Zero::kMinima) sum = V::fused(V::set(block.activation_sums[row + r]), minima, sum);
        V::store(to, sum);
      }
    }
  }
}

template <class V, int kBits, Line kLine, Fetch kFetch, Zero kZero, Stored kStored>
EDGE_RAG_INLINE void add_block(const BlockProduct& block, const EqualRuns& runs) {
  using P = typename V::template Products<kBits>;
  constexpr int kMatrixRows = V::kMatrixRows;
  for_each_run<P::kRows / kMatrixRows>(runs, [&](int64_t begin, int64_t end, auto size) EDGE_RAG_LAMBDA {
    constexpr int kRows = decltype(size)::value * kMatrixRows;
    for (int64_t panel = 0; panel < kPanelGroup; panel += P::kColumns) {
      add_product<V, kBits, kLine, kFetch, kZero, kStored, kRows, P::kColumns>(block, begin * kMatrixRows,
                                                                               end * kMatrixRows, panel);
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

// x times the normal distribution's share below x (Hendrycks and Gimpel, 2016), with an error below 3e-6 * |x|. The share
// of the tail is formula 26.2.17 of Abramowitz and Stegun's handbook.
template <class V>
EDGE_RAG_INLINE typename V::Floats gelu(typename V::Floats x) {
  const auto distance = V::larger(x, V::subtract(V::set(0.0f), x));
  const auto t = V::divide(V::set(1.0f), V::fused(distance, V::set(0.2316419f), V::set(1.0f)));
  auto tail = V::set(0.530702714f);
  tail = V::fused(tail, t, V::set(-0.726576013f));
  tail = V::fused(tail, t, V::set(0.710706870f));
  tail = V::fused(tail, t, V::set(-0.142248368f));
  tail = V::fused(tail, t, V::set(0.127414796f));
  const auto density = power_of_two<V>(V::multiply(V::multiply(x, x), V::set(-0.5f * 1.44269504088896341f)));
  const auto share = V::multiply(V::multiply(tail, t), density);
  return V::multiply(x, V::by_sign(x, share, V::subtract(V::set(1.0f), share)));
}

template <class V>
EDGE_RAG_INLINE void store_lanes(float* to, int64_t lanes, typename V::Floats x) {
  if (lanes >= kLanes) return V::store(to, x);
  alignas(64) float values[kLanes];
  V::store(values, x);
  for (int64_t i = 0; i < lanes; ++i) to[i] = values[i];
}

template <class V, Epilogue kEpilogue>
EDGE_RAG_INLINE void write_rows(const float* sums, int64_t rows, int64_t first_panel, float* to,
                                const ProductOutput& out) {
  constexpr int64_t kStep = kEpilogue == Epilogue::kGate ? 2 : 1;
  typename V::Floats bias[kPanelGroup];
  for (int64_t panel = 0; panel < kPanelGroup; ++panel) {
    const int64_t column = (first_panel + panel) * kLanes;
    bias[panel] = out.bias != nullptr && column < out.columns ? load_padded<V>(out.bias, column, out.columns)
                                                              : V::set(0.0f);
  }
  for (int64_t r = 0; r < rows; ++r, sums += kPanelGroup * kLanes, to += out.columns) {
    for (int64_t panel = 0; panel < kPanelGroup; panel += kStep) {
      const int64_t column = (first_panel + panel) / kStep * kLanes;
      if (column >= out.columns) break;
      auto value = V::load(sums + panel * kLanes);
      if constexpr (kEpilogue == Epilogue::kGate) {
        value = V::multiply(silu<V>(value), V::load(sums + (panel + 1) * kLanes));
      } else {
        value = V::add(value, bias[panel]);
      }
      if constexpr (kEpilogue == Epilogue::kGelu) value = gelu<V>(value);
      store_lanes<V>(to + column, out.columns - column, value);
    }
  }
}

template <class V>
EDGE_RAG_INLINE void write_strip(const float* sums, int64_t rows, int64_t first_panel, float* to,
                                 const ProductOutput& out) {
  switch (out.epilogue) {
    case Epilogue::kNone: return write_rows<V, Epilogue::kNone>(sums, rows, first_panel, to, out);
    case Epilogue::kGate: return write_rows<V, Epilogue::kGate>(sums, rows, first_panel, to, out);
    case Epilogue::kGelu: return write_rows<V, Epilogue::kGelu>(sums, rows, first_panel, to, out);
  }
}

// Nibbles of a block become bytes, and bytes take the form in which the build multiplies them, for all rows of a strip.
template <class V, int kBits>
EDGE_RAG_INLINE void unpack(BlockProduct& block, uint8_t (*room)[kUnpackedBlockRows * kLanes]) {
  constexpr int64_t kLines = kBits == 4 ? 1 : 2;  // that two are made of
  for (int64_t p = 0; p < kPanelGroup; ++p) {
    for (int64_t i = 0; i < block.lines; i += kLines) {
      const uint8_t* const from = block.weights[p] + i * kLineBytes;
      uint8_t* const to = room[p] + i * kLineBytes * 2 / kLines;
      if constexpr (kBits == 4) {
        V::split_nibbles(from, to);
      } else {
        V::rewrite_bytes(from, to);
      }
    }
    block.weights[p] = room[p];
  }
  block.lines *= 2 / kLines;
}

// Scales and minima of a block become floats, for all rows of a strip.
template <class V, Zero kZero, Stored kStored>
EDGE_RAG_INLINE void widen(BlockProduct& block, float (*scales)[kLanes], float (*minima)[kLanes]) {
  if constexpr (kStored == Stored::kFloat) return;
  for (int64_t p = 0; p < kPanelGroup; ++p) {
    V::store(scales[p], load_stored<V, kStored>(block.scales[p], block.scale_factors[p]));
    block.scales[p] = reinterpret_cast<const uint8_t*>(scales[p]);
    if constexpr (kZero == Zero::kMinima) {
      V::store(minima[p], load_stored<V, kStored>(block.zeros[p], block.minimum_factors[p]));
      block.zeros[p] = reinterpret_cast<const uint8_t*>(minima[p]);
    }
  }
}

// Adds the products of a strip's rows with a group of panels to sums of zero.
template <class V, int kBits, Zero kZero, Stored kStored>
EDGE_RAG_INLINE void add_group(const Activations& activations, const QuantizedMatrix& matrix, int64_t strip,
                               const EqualRuns& runs, int64_t first_panel, BlockProduct& block) {
  using P = typename V::template Products<kBits>;
  constexpr bool kUnpacks = kBits == 4 || V::kRewritesBytes;
  const int64_t rows = runs.total * V::kMatrixRows;
  const bool few = rows < kArithmeticRows || (kUnpacks && matrix.block_rows > kUnpackedBlockRows);
  const int64_t lines = matrix.lines(matrix.block_rows);
  const uint8_t* weights[kPanelGroup];
  const uint8_t* next_group[kPanelGroup];
  int64_t at_scale[kPanelGroup];
  int64_t at_factor[kPanelGroup];
  const auto* const scales = static_cast<const uint8_t*>(matrix.scales);
  const auto* const minima = static_cast<const uint8_t*>(matrix.minima);
  for (int64_t p = 0; p < kPanelGroup; ++p) {
    // Past the last panel the last one is multiplied again; nothing of that is written.
    const int64_t panel = smaller(first_panel + p, matrix.panels - 1);
    weights[p] = matrix.weights + panel * matrix.panel_bytes();
    next_group[p] = matrix.weights + smaller(panel + kPanelGroup, matrix.panels - 1) * matrix.panel_bytes();
    at_scale[p] = matrix.at_scale(panel, 0);
    at_factor[p] = matrix.at_factor(panel, 0);
  }
  block.stride = activations.stride;
  block.next_lines = (lines * P::kRows + rows - 1) / rows;
  const float* const output = block.output;
  for (int64_t b = 0; b < matrix.blocks; ++b) {
    const bool last = b + 1 == matrix.blocks;
    const int64_t at = activations.at(b, strip);
    block.integers = activations.integers + at * activations.stride;
    block.activation_scales = activations.scales + at;
    block.activation_sums = activations.sums + at;
    block.offsets = activations.offsets + at;
    block.lines = last ? matrix.lines(matrix.padded_rows() - b * matrix.block_rows) : lines;
    block.output = last ? output : nullptr;
    for (int64_t p = 0; p < kPanelGroup; ++p) {
      block.weights[p] = weights[p] + b * matrix.block_bytes();
      block.next[p] = last ? next_group[p] : block.weights[p] + matrix.block_bytes();
      const int64_t lane = at_scale[p] + b * kLanes;
      block.scales[p] = scales + lane * bytes_of(kStored);
      // Scales come in pieces too small for the processor to see in time where they go on.
      const int64_t soon = (lane + kScalesAhead * kLanes) * bytes_of(kStored);
      __builtin_prefetch(scales + soon);
      if constexpr (kZero == Zero::kMinima) __builtin_prefetch(minima + soon);
      if constexpr (kZero == Zero::kPoints) block.zeros[p] = matrix.zero_points + lane;
      if constexpr (kZero == Zero::kMinima) block.zeros[p] = minima + lane * bytes_of(kStored);
      if constexpr (kStored == Stored::kByte) {
        const int64_t factor = at_factor[p] + b / matrix.group_blocks * kLanes;
        block.scale_factors[p] = matrix.scale_factors + factor;
        if constexpr (kZero == Zero::kMinima) block.minimum_factors[p] = matrix.minimum_factors + factor;
      }
    }
    if (few) {
      add_block<V, kBits, kBits == 4 ? Line::kNibbles : Line::kBytes, Fetch::kByLine, kZero, kStored>(block, runs);
    } else {
      alignas(64) float scales_room[kPanelGroup][kLanes];
      alignas(64) float minima_room[kPanelGroup][kLanes];
      alignas(64) uint8_t weights_room[kPanelGroup][kUnpacks ? kUnpackedBlockRows * kLanes : 1];
      widen<V, kZero, kStored>(block, scales_room, minima_room);
      if constexpr (kUnpacks) unpack<V, kBits>(block, weights_room);
      constexpr Line kLine = V::kRewritesBytes ? Line::kRewritten : Line::kBytes;
      add_block<V, kBits, kLine, Fetch::kByRows, kZero, Stored::kFloat>(block, runs);
    }
  }
}

template <class V, int kBits, Zero kZero, Stored kStored>
void multiply_part(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                   const ProductOutput& out) {
  alignas(64) float sums[kStripRows * kPanelGroup * kLanes];
  const int64_t panels_of_column = out.gated() ? 2 : 1;
  BlockProduct block{};
  block.sums = sums;
  block.output_columns = out.columns;
  for (int64_t strip = part.begin; strip < part.end; strip += kStripRows) {
    const int64_t rows = smaller(part.end - strip, kStripRows);
    constexpr int64_t kMatrixRows = V::kMatrixRows;
    // Where rows are multiplied by twos and one is left, so is what lies behind it; nothing of that is written.
    const int64_t sums_of_rows = (rows + kMatrixRows - 1) / kMatrixRows;
    const EqualRuns runs = equal_runs<V::template Products<kBits>::kRows / kMatrixRows>(sums_of_rows);
    float* const output = out.data + strip * out.columns;
    for (int64_t first = part.first_panel; first < part.last_panel; first += kPanelGroup) {
      const int64_t column = first / panels_of_column * kLanes;
      block.output = output + column;
      block.output_width = smaller(kPanelGroup / panels_of_column * kLanes, out.columns - column);
      std::memset(sums, 0, static_cast<size_t>(rows * kPanelGroup * kLanes) * sizeof(float));
      add_group<V, kBits, kZero, kStored>(activations, matrix, strip, runs, first, block);
      write_strip<V>(sums, rows, first, output, out);
    }
  }
}

template <class V, int kBits, Zero kZero>
void multiply_stored(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                     const ProductOutput& out) {
  switch (matrix.stored) {
    case Stored::kFloat: return multiply_part<V, kBits, kZero, Stored::kFloat>(activations, matrix, part, out);
    case Stored::kHalf: return multiply_part<V, kBits, kZero, Stored::kHalf>(activations, matrix, part, out);
    case Stored::kByte: return multiply_part<V, kBits, kZero, Stored::kByte>(activations, matrix, part, out);
  }
}

template <class V, int kBits>
void multiply_bits(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                   const ProductOutput& out) {
  switch (matrix.zero()) {
    case Zero::kMiddle: return multiply_stored<V, kBits, Zero::kMiddle>(activations, matrix, part, out);
    case Zero::kMinima: return multiply_stored<V, kBits, Zero::kMinima>(activations, matrix, part, out);
    case Zero::kPoints: return multiply_part<V, kBits, Zero::kPoints, Stored::kFloat>(activations, matrix, part, out);
  }
}

template <class V>
void multiply(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
              const ProductOutput& out) {
  const auto of_bits = matrix.bits == 4 ? multiply_bits<V, 4> : multiply_bits<V, 8>;
  of_bits(activations, matrix, part, out);
}

template <class V>
constexpr QuantizedKernels make_quantized_kernels() {
  return {quantize_activations<V>, multiply<V>};
}

}  // namespace
}  // namespace edge_rag
