// Attention over INT8 pages with an online softmax (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022) in
// integer products. A query is quantized to 15 bits, and so are the weights of each block of tokens, in units of the
// block's largest: both errors are below a hundredth of what INT8 keys and values cost. With 8 bits each would cost as
// much as they do.
#pragma once

#include <cstdint>
#include <cstring>

#include "exponential.h"
#include "kernels.h"
#include "multiply.h"
#include "quantize.h"

namespace edge_rag {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int64_t kBlockVectors = kBlockTokens / kLanes;

// One block of a sequence's context for one kv head: up to kBlockTokens tokens, on consecutive pages of its table.
struct Block {
  const uint8_t* keys[kBlockVectors];
  const uint8_t* values[kBlockVectors];
  int64_t begin;   // position of its first token
  int64_t tokens;  // those that some row sees
  alignas(64) float key_scale[kBlockTokens];
  alignas(64) float value_scale[kBlockTokens];
  alignas(64) float value_share[kBlockTokens];  // of a whole block: the scale in units of the weights
  float value_unit;                             // of a whole block: what a weight of 1 stands for
};

// Rows that are attended together, over one span, and as many that see nothing as fill up the last register tile.
template <int64_t kElements>
struct Tile {
  static constexpr int64_t kRows = kTileElements / kElements;

  int64_t rows;
  int64_t last_position;       // of all rows
  int64_t positions[kRows];    // a row sees positions 0 to this
  float query_scale[kRows];
  int32_t sums[kRows];         // of a row's elements
  alignas(64) uint8_t queries[kRows * 2 * kElements];
};

template <class V, int64_t kElements>
EDGE_RAG_INLINE void fill_tile(const Step& step, const RowRange& range, Tile<kElements>& tile) {
  const int64_t group = step.group();
  tile.rows = range.end - range.begin;
  tile.last_position = 0;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t row = range.begin + r;
    const int64_t token = range.first_token + row / group;
    const int64_t head = range.kv_head * group + row % group;
    const QueryRow query = quantize_query<V, kElements>(step, token, head, tile.queries + r * 2 * kElements);
    tile.query_scale[r] = query.scale;
    tile.sums[r] = query.sum;
    tile.positions[r] = step.positions[token];
    tile.last_position = tile.positions[r] > tile.last_position ? tile.positions[r] : tile.last_position;
  }
  for (int64_t r = tile.rows; r < padded_rows(tile.rows); ++r) {
    tile.positions[r] = -1;
    tile.query_scale[r] = 0.0f;
    tile.sums[r] = 0;
    std::memset(tile.queries + r * 2 * kElements, 0, 2 * kElements);
  }
}

// The largest of the value scales of the first `seen` tokens of a block.
template <class V>
EDGE_RAG_INLINE float largest_value_scale(const Block& block, int64_t seen) {
  const auto none = V::set(0.0f);
  auto largest = none;
  for (int64_t t = 0; t < seen; t += kLanes) {
    largest = V::larger(largest, V::first_lanes(seen - t, V::load(block.value_scale + t), none));
  }
  return V::largest(largest);
}

EDGE_RAG_INLINE float reciprocal_unit(float largest) { return largest > 0.0f ? kRowLimit / largest : 0.0f; }

template <class V>
EDGE_RAG_INLINE void open_block(const Step& step, const RowRange& range, int64_t begin, int64_t tokens, Block& block) {
  const PageLayout& layout = step.layout;
  const int32_t* table = step.block_table + range.sequence * step.table_width + begin / layout.page_tokens;
  block.begin = begin;
  block.tokens = tokens;
  for (int64_t p = 0; p * layout.page_tokens < tokens; ++p) {
    const uint8_t* page = step.pages + table[p] * step.page_bytes;
    block.keys[p] = page + layout.key(range.kv_head);
    block.values[p] = page + layout.value(range.kv_head);
    const auto* key_scale = reinterpret_cast<const float*>(page + layout.key_scale(range.kv_head));
    const auto* value_scale = reinterpret_cast<const float*>(page + layout.value_scale(range.kv_head));
    const int64_t at = p * layout.page_tokens;
    for (int64_t t = 0; t < layout.page_tokens; t += kLanes) {
      V::store(block.key_scale + at + t, V::load(key_scale + t));
      V::store(block.value_scale + at + t, V::load(value_scale + t));
    }
  }
  if (tokens < kBlockTokens) return;
  const float largest = largest_value_scale<V>(block, kBlockTokens);
  block.value_unit = largest / kRowLimit;
  const auto inverse = V::set(reciprocal_unit(largest));
  for (int64_t t = 0; t < kBlockTokens; t += kLanes) {
    V::store(block.value_share + t, V::multiply(V::load(block.value_scale + t), inverse));
  }
}

// What a block comes to for the rows of a register tile.
struct BlockSoftmax {
  alignas(64) float scores[kRowStep][kBlockTokens];  // in units of the query
  alignas(64) uint8_t weights[kRowStep * 2 * kBlockTokens];
  alignas(64) float sums[kRowStep][kLanes];
  float maximum[kLanes];  // a lane a row; lanes past the rows are not used
  float unit[kLanes];     // of the weights
};

// Turns a row's scores into weights: 2^(score - maximum) times the token's value scale, as integers.
template <class V>
__attribute__((noinline)) void weigh(const Block& block, float query_scale, int64_t r, BlockSoftmax& softmax) {
  typename V::Floats scores[kBlockVectors];
  const auto scale = V::set(query_scale);
  auto maximum = V::set(kMinusInfinity);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kBlockVectors; ++i) {
    scores[i] = V::multiply(V::load(softmax.scores[r] + i * kLanes), scale);
    maximum = V::larger(maximum, scores[i]);
  }
  softmax.maximum[r] = V::largest(maximum);
  softmax.unit[r] = block.value_unit;
  maximum = V::set(softmax.maximum[r]);
  auto sum = V::set(0.0f);
#pragma GCC unroll 2
  for (int64_t part = 0; part < kBlockVectors; part += 4) {
    typename V::Ints weights[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const auto power = power_of_two<V>(V::subtract(scores[part + i], maximum));
      sum = V::add(sum, power);
      weights[i] = V::round(V::multiply(power, V::load(block.value_share + (part + i) * kLanes)));
    }
    V::template store_row_of_64<kBlockTokens>(softmax.weights + r * 2 * kBlockTokens, part * kLanes, weights);
  }
  V::store(softmax.sums[r], sum);
}

// The same for a row that sees the first `seen` tokens of a block only: none of the others may show in its result.
template <class V>
__attribute__((noinline)) void weigh_seen(const Block& block, int64_t seen, float query_scale, int64_t r,
                                          BlockSoftmax& softmax) {
  const auto scale = V::set(query_scale);
  const auto none = V::set(0.0f);
  auto maximum = V::set(kMinusInfinity);
  for (int64_t t = 0; t < seen; t += kLanes) {
    const auto scores = V::multiply(V::load(softmax.scores[r] + t), scale);
    maximum = V::larger(maximum, V::first_lanes(seen - t, scores, V::set(kMinusInfinity)));
  }
  softmax.maximum[r] = V::largest(maximum);
  maximum = V::set(softmax.maximum[r]);
  const float largest = largest_value_scale<V>(block, seen);
  softmax.unit[r] = largest / kRowLimit;
  const auto inverse = V::set(reciprocal_unit(largest));
  auto sum = none;
  for (int64_t part = 0; part < kBlockTokens; part += 4 * kLanes) {
    typename V::Ints weights[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t t = part + i * kLanes;
      weights[i] = V::round(none);
      if (t >= seen) continue;
      const auto scores = V::multiply(V::load(softmax.scores[r] + t), scale);
      const auto power = V::first_lanes(seen - t, power_of_two<V>(V::subtract(scores, maximum)), none);
      const auto share = V::multiply(V::load(block.value_scale + t), inverse);
      sum = V::add(sum, power);
      weights[i] = V::round(V::multiply(power, V::first_lanes(seen - t, share, none)));
    }
    V::template store_row_of_64<kBlockTokens>(softmax.weights + r * 2 * kBlockTokens, part, weights);
  }
  V::store(softmax.sums[r], sum);
}

// Adds a block to the partial sums of R rows from `first` on.
template <class V, int64_t kElements, int R>
__attribute__((noinline)) void attend_block(const PageLayout& layout, const Block& block, const Tile<kElements>& tile,
                                            int64_t first, const Partial& out) {
  int64_t seen[R];
  int64_t most = 0;
  for (int r = 0; r < R; ++r) {
    const int64_t tokens = tile.positions[first + r] + 1 - block.begin;
    seen[r] = tokens < kBlockTokens ? tokens : kBlockTokens;
    most = seen[r] > most ? seen[r] : most;
  }
  if (most == 0) return;
  const int64_t pages = (most + layout.page_tokens - 1) / layout.page_tokens;

  BlockSoftmax softmax;
  for (int64_t p = 0; p < pages; ++p) {
    const Panels keys{&block.keys[p], 1, layout.head_size / kQuad, layout.page_tokens * kQuad};
    in_equal_parts<V::kColumns>(layout.page_tokens / kLanes, [&](int64_t vector, auto columns) EDGE_RAG_LAMBDA {
      constexpr int kColumns = decltype(columns)::value;
      typename V::Ints products[R * kColumns];
      multiply<V, Operand::kKeys, kElements, R, kColumns>(tile.queries + first * 2 * kElements, tile.sums + first, keys,
                                                          vector * kLanes, products);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        const int64_t at = p * layout.page_tokens + (vector + c) * kLanes;
        const auto scale = V::load(block.key_scale + at);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          V::store(softmax.scores[r] + at, V::multiply(V::to_float(products[r * kColumns + c]), scale));
        }
      }
    });
  }
#pragma GCC unroll 1
  for (int r = 0; r < R; ++r) {
    if (seen[r] == kBlockTokens) {
      weigh<V>(block, tile.query_scale[first + r], r, softmax);
    } else if (seen[r] > 0) {
      weigh_seen<V>(block, seen[r], tile.query_scale[first + r], r, softmax);
    } else {
      softmax.maximum[r] = softmax.unit[r] = 0.0f;
      std::memset(softmax.weights + r * 2 * kBlockTokens, 0, 2 * kBlockTokens);
    }
  }

  float kept[kLanes] = {};
  for (int r = 0; r < R; ++r) kept[r] = out.maximum[first + r];
  for (int r = R; r < kLanes; ++r) softmax.maximum[r] = softmax.unit[r] = 0.0f;
  const auto before = V::load(kept);
  const auto here = V::load(softmax.maximum);
  const auto maximum = V::larger(before, here);
  float decay[kLanes];
  float share[kLanes];
  float unit[kLanes];
  V::store(kept, maximum);
  V::store(decay, power_of_two<V>(V::subtract(before, maximum)));
  const auto shares = power_of_two<V>(V::subtract(here, maximum));
  V::store(share, shares);
  V::store(unit, V::multiply(shares, V::load(softmax.unit)));
  for (int r = 0; r < R; ++r) {
    if (seen[r] <= 0) continue;
    out.maximum[first + r] = kept[r];
    float* sum = out.sum + (first + r) * kLanes;
    const auto added = V::multiply(V::load(softmax.sums[r]), V::set(share[r]));
    V::store(sum, V::fused(V::load(sum), V::set(decay[r]), added));
  }

  const Panels values{block.values, pages, layout.page_tokens / kQuad, layout.head_size * kQuad};
  const int64_t vectors = (layout.head_size + kLanes - 1) / kLanes;
  in_equal_parts<V::kColumns>(vectors, [&](int64_t vector, auto columns) EDGE_RAG_LAMBDA {
    constexpr int kColumns = decltype(columns)::value;
    typename V::Ints sums[R * kColumns];
    multiply<V, Operand::kValues, kBlockTokens, R, kColumns>(softmax.weights, nullptr, values, vector * kLanes, sums);
    for (int r = 0; r < R; ++r) {
      if (seen[r] <= 0) continue;
      float* output = out.output + (first + r) * kElements + vector * kLanes;
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        const auto added = V::multiply(V::to_float(sums[r * kColumns + c]), V::set(unit[r]));
        V::store(output + c * kLanes, V::fused(V::load(output + c * kLanes), V::set(decay[r]), added));
      }
    }
  });
}

template <class V, int64_t kElements>
void attend_tile_span(const Step& step, const RowRange& range, const Tile<kElements>& tile, int64_t span,
                      const Partial& out) {
  for (int64_t i = 0; i < padded_rows(tile.rows); ++i) out.maximum[i] = kMinusInfinity;
  std::memset(out.sum, 0, static_cast<size_t>(tile.rows * kLanes) * sizeof(float));
  std::memset(out.output, 0, static_cast<size_t>(tile.rows * kElements) * sizeof(float));
  Block block;
  for (int64_t i = 0; i < kSpanTokens / kBlockTokens; ++i) {
    const int64_t begin = span * kSpanTokens + i * kBlockTokens;
    if (begin > tile.last_position) return;
    const int64_t tokens = tile.last_position + 1 - begin;
    open_block<V>(step, range, begin, tokens < kBlockTokens ? tokens : kBlockTokens, block);
    in_powers_of_two<V::kRows>(tile.rows, [&](int64_t first, auto rows) EDGE_RAG_LAMBDA {
      attend_block<V, kElements, decltype(rows)::value>(step.layout, block, tile, first, out);
    });
  }
}

// Adds a later span to what precedes it.
template <class V, int64_t kElements>
EDGE_RAG_INLINE void merge_row(int64_t row, const Partial& from, const Partial& into) {
  const float maximum = from.maximum[row] > into.maximum[row] ? from.maximum[row] : into.maximum[row];
  alignas(64) float factors[kLanes] = {into.maximum[row] - maximum, from.maximum[row] - maximum};
  V::store(factors, power_of_two<V>(V::load(factors)));
  const auto decay = V::set(factors[0]);
  const auto share = V::set(factors[1]);
  into.maximum[row] = maximum;
  const auto merge = [&](const float* part, float* whole) EDGE_RAG_LAMBDA {
    V::store(whole, V::fused(V::load(whole), decay, V::multiply(V::load(part), share)));
  };
  merge(from.sum + row * kLanes, into.sum + row * kLanes);
  for (int64_t i = 0; i < kElements; i += kLanes) {
    merge(from.output + row * kElements + i, into.output + row * kElements + i);
  }
}

template <class V, int64_t kElements>
EDGE_RAG_INLINE void write_output(const Step& step, const RowRange& range, const Partial& whole) {
  const int64_t group = step.group();
  const int64_t size = step.layout.head_size;
  for (int64_t r = 0; r < range.end - range.begin; ++r) {
    const int64_t row = range.begin + r;
    const int64_t token = range.first_token + row / group;
    const int64_t head = range.kv_head * group + row % group;
    const auto inverse = V::set(1.0f / V::total(V::load(whole.sum + r * kLanes)));
    float* scaled = whole.output + r * kElements;
    for (int64_t i = 0; i < size; i += kLanes) V::store(scaled + i, V::multiply(V::load(scaled + i), inverse));
    float* output = step.output + (token * step.query_heads + head) * size;
    std::memcpy(output, scaled, static_cast<size_t>(size) * sizeof(float));
  }
}

// Room for the partial sums of a tile.
template <int64_t kElements>
struct PartialRoom {
  static constexpr int64_t kRows = kTileElements / kElements;
  float maximum[kRows];
  alignas(64) float sum[kRows * kLanes];
  alignas(64) float output[kRows * kElements];

  EDGE_RAG_INLINE Partial view() { return {maximum, sum, output}; }
};

template <class V, int64_t kElements>
void attend_tile(const Step& step, const RowRange& range) {
  Tile<kElements> tile;
  fill_tile<V>(step, range, tile);
  PartialRoom<kElements> whole;
  attend_tile_span<V>(step, range, tile, 0, whole.view());
  if (tile.last_position >= kSpanTokens) {
    PartialRoom<kElements> part;
    for (int64_t span = 1; span * kSpanTokens <= tile.last_position; ++span) {
      attend_tile_span<V>(step, range, tile, span, part.view());
      for (int64_t r = 0; r < tile.rows; ++r) {
        if (tile.positions[r] >= span * kSpanTokens) merge_row<V, kElements>(r, part.view(), whole.view());
      }
    }
  }
  write_output<V, kElements>(step, range, whole.view());
}

template <class V, int64_t kElements>
void attend_one_span(const Step& step, const RowRange& range, int64_t span, const Partial& out) {
  Tile<kElements> tile;
  fill_tile<V>(step, range, tile);
  attend_tile_span<V>(step, range, tile, span, out);
}

template <class V, int64_t kElements>
void merge_tile(const Step& step, const RowRange& range, const Partial* spans) {
  for (int64_t r = 0; r < range.end - range.begin; ++r) {
    const int64_t position = step.positions[range.first_token + (range.begin + r) / step.group()];
    for (int64_t span = 1; span * kSpanTokens <= position; ++span) merge_row<V, kElements>(r, spans[span], spans[0]);
  }
  write_output<V, kElements>(step, range, spans[0]);
}

// Calls body with the elements of a row of this head size.
template <class Body>
EDGE_RAG_INLINE void with_elements(int64_t head_size, Body&& body) {
  switch (row_elements(head_size)) {
    case 64: return body(std::integral_constant<int64_t, 64>{});
    case 128: return body(std::integral_constant<int64_t, 128>{});
    default: return body(std::integral_constant<int64_t, 256>{});
  }
}

template <class V>
constexpr KernelBuild make_build(const char* name, const QuantizedKernels& quantized) {
  return {name, store_tokens<V>,
          [](const Step& step, const RowRange& range) {
            with_elements(step.layout.head_size, [&](auto elements) EDGE_RAG_LAMBDA {
              attend_tile<V, decltype(elements)::value>(step, range);
            });
          },
          [](const Step& step, const RowRange& range, int64_t span, const Partial& out) {
            with_elements(step.layout.head_size, [&](auto elements) EDGE_RAG_LAMBDA {
              attend_one_span<V, decltype(elements)::value>(step, range, span, out);
            });
          },
          [](const Step& step, const RowRange& range, const Partial* spans) {
            with_elements(step.layout.head_size, [&](auto elements) EDGE_RAG_LAMBDA {
              merge_tile<V, decltype(elements)::value>(step, range, spans);
            });
          },
          quantized};
}

}  // namespace
}  // namespace edge_rag
