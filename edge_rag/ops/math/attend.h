// Attention over pages with an online softmax (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022) in
// integer products. A query is quantized to 15 bits, and so are the weights of each block of tokens, in units of the
// block's largest: both errors are below a hundredth of what INT8 keys and values cost. With 8 bits each would cost as
// much as they do.
#pragma once

#include <cstdint>
#include <cstring>

#include "block.h"
#include "exponential.h"
#include "kernels.h"
#include "move.h"
#include "multiply.h"
#include "quantize.h"

namespace edge_rag {
namespace {

// Rows that are attended together, over one span, and as many that see nothing as fill up the last register tile.
template <int64_t kElements>
struct Tile {
  static constexpr int64_t kRows = kTileElements / kElements;

  int64_t rows;
  int64_t first_seen;          // of all rows, the first position that one sees
  int64_t last_position;       // of all rows
  int64_t positions[kRows];    // the last that a row sees
  float query_scale[kRows];
  int32_t sums[kRows];         // of a row's elements
  alignas(64) uint8_t queries[kRows * 2 * kElements];
};

template <class V, int64_t kElements>
EDGE_RAG_INLINE void fill_tile(const Step& step, const RowRange& range, Tile<kElements>& tile) {
  const int64_t group = step.group();
  tile.rows = range.end - range.begin;
  tile.first_seen = INT64_MAX;
  tile.last_position = 0;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t row = range.begin + r;
    const int64_t token = range.first_token + row / group;
    const int64_t head = range.kv_head * group + row % group;
    const QueryRow query = quantize_query<V, kElements>(step, token, head, tile.queries + r * 2 * kElements);
    tile.query_scale[r] = query.scale;
    tile.sums[r] = query.sum;
    tile.positions[r] = step.positions[token];
    const int64_t first_seen = step.first_seen(tile.positions[r]);
    tile.first_seen = first_seen < tile.first_seen ? first_seen : tile.first_seen;
    tile.last_position = tile.positions[r] > tile.last_position ? tile.positions[r] : tile.last_position;
  }
  for (int64_t r = tile.rows; r < padded_rows(tile.rows); ++r) {
    tile.positions[r] = -1;
    tile.query_scale[r] = 0.0f;
    tile.sums[r] = 0;
    std::memset(tile.queries + r * 2 * kElements, 0, 2 * kElements);
  }
}

// Adds a block to the partial sums of R rows from `first` on.
template <class V, int64_t kElements, int R>
__attribute__((noinline)) void attend_block(const Step& step, const Block& block, const Tile<kElements>& tile,
                                            int64_t first, const Partial& out) {
  const PageLayout& layout = step.layout;
  Seen seen[R];
  Seen any{kBlockTokens, 0};
  for (int r = 0; r < R; ++r) {
    const int64_t position = tile.positions[first + r];
    const int64_t begin = step.first_seen(position) - block.begin;
    const int64_t end = position + 1 - block.begin;
    seen[r] = {begin > 0 ? begin : 0, end < kBlockTokens ? end : kBlockTokens};
    if (seen[r].none()) continue;
    any.begin = seen[r].begin < any.begin ? seen[r].begin : any.begin;
    any.end = seen[r].end > any.end ? seen[r].end : any.end;
  }
  if (any.none()) return;
  const int64_t first_page = any.begin / layout.page_tokens;
  const int64_t end_page = (any.end + layout.page_tokens - 1) / layout.page_tokens;

  BlockSoftmax softmax;
  for (int64_t p = first_page; p < end_page; ++p) {
    const Panels keys{0, &block.keys[p], 1, layout.head_size / kQuad, layout.page_tokens * kQuad};
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
    float query_scale = tile.query_scale[first + r];
    if (step.softcap > 0.0f && !seen[r].none()) {
      cap_scores<V>(step.softcap, query_scale, first_page * layout.page_tokens, end_page * layout.page_tokens,
                    softmax.scores[r]);
      query_scale = 1.0f;
    }
    if (seen[r].all()) {
      weigh<V>(block, query_scale, r, softmax);
    } else if (!seen[r].none()) {
      weigh_seen<V>(block, seen[r], query_scale, r, softmax);
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
    if (seen[r].none()) continue;
    out.maximum[first + r] = kept[r];
    float* sum = out.sum + (first + r) * kLanes;
    const auto added = V::multiply(V::load(softmax.sums[r]), V::set(share[r]));
    V::store(sum, V::fused(V::load(sum), V::set(decay[r]), added));
  }

  const Panels values{first_page * layout.page_tokens, &block.values[first_page], end_page - first_page,
                      layout.page_tokens / kQuad, layout.head_size * kQuad};
  const int64_t vectors = (layout.head_size + kLanes - 1) / kLanes;
  in_equal_parts<V::kColumns>(vectors, [&](int64_t vector, auto columns) EDGE_RAG_LAMBDA {
    constexpr int kColumns = decltype(columns)::value;
    typename V::Ints sums[R * kColumns];
    multiply<V, Operand::kValues, kBlockTokens, R, kColumns>(softmax.weights, nullptr, values, vector * kLanes, sums);
    for (int r = 0; r < R; ++r) {
      if (seen[r].none()) continue;
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
    if (begin + kBlockTokens <= tile.first_seen) continue;
    const int64_t unseen = tile.first_seen - begin;
    const int64_t tokens = tile.last_position + 1 - begin;
    const Seen seen{unseen > 0 ? unseen : 0, tokens < kBlockTokens ? tokens : kBlockTokens};
    open_block<V>(step, range, begin, seen, block);
    prefetch_block(step, range, begin + kBlockTokens, tile.last_position + 1);
    in_powers_of_two<V::kRows>(tile.rows, [&](int64_t first, auto rows) EDGE_RAG_LAMBDA {
      attend_block<V, kElements, decltype(rows)::value>(step, block, tile, first, out);
    });
  }
}

// Adds a later span to what precedes it, for a row whose token is at a position. The first span that the row sees takes
// the place of what came of its tile's earlier ones, so that the result has the same bits in any tile.
template <class V, int64_t kElements>
EDGE_RAG_INLINE void merge_row(const Step& step, int64_t position, int64_t span, int64_t row, const Partial& from,
                               const Partial& into) {
  const int64_t first_span = step.first_seen(position) / kSpanTokens;
  if (span < first_span || span * kSpanTokens > position) return;
  if (span == first_span) {
    into.maximum[row] = from.maximum[row];
    std::memcpy(into.sum + row * kLanes, from.sum + row * kLanes, kLanes * sizeof(float));
    std::memcpy(into.output + row * kElements, from.output + row * kElements, kElements * sizeof(float));
    return;
  }
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
  int64_t span = tile.first_seen / kSpanTokens;
  attend_tile_span<V>(step, range, tile, span, whole.view());
  if (++span * kSpanTokens <= tile.last_position) {
    PartialRoom<kElements> part;
    for (; span * kSpanTokens <= tile.last_position; ++span) {
      attend_tile_span<V>(step, range, tile, span, part.view());
      for (int64_t r = 0; r < tile.rows; ++r) {
        merge_row<V, kElements>(step, tile.positions[r], span, r, part.view(), whole.view());
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
void merge_tile(const Step& step, const RowRange& range, int64_t first_span, const Partial* spans) {
  for (int64_t r = 0; r < range.end - range.begin; ++r) {
    const int64_t position = step.positions[range.first_token + (range.begin + r) / step.group()];
    for (int64_t span = first_span + 1; span * kSpanTokens <= position; ++span) {
      merge_row<V, kElements>(step, position, span, r, spans[span - first_span], spans[0]);
    }
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
constexpr KernelBuild make_build(const char* name, const QuantizedKernels& quantized,
                                 const EncoderKernels& encoder) {
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
          [](const Step& step, const RowRange& range, int64_t first_span, const Partial* spans) {
            with_elements(step.layout.head_size, [&](auto elements) EDGE_RAG_LAMBDA {
              merge_tile<V, decltype(elements)::value>(step, range, first_span, spans);
            });
          },
          move_tokens<V>,
          quantized,
          encoder};
}

}  // namespace
}  // namespace edge_rag
