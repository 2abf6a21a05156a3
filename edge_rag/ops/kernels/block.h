// A block of tokens and its part of the softmax.
#pragma once

#include <cstdint>

#include "exponential.h"
#include "hyperbolic_tangent.h"
#include "kernels.h"
#include "store.h"

namespace edge_rag {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int64_t kBlockVectors = kBlockTokens / kLanes;

// A stretch of a block's tokens: what one of its rows sees.
struct Seen {
  int64_t begin;
  int64_t end;

  EDGE_RAG_INLINE bool all() const { return begin == 0 && end == kBlockTokens; }
  EDGE_RAG_INLINE bool none() const { return begin >= end; }
};

// x in the lanes of tokens [t, t + kLanes) that are seen, otherwise in the rest.
template <class V>
EDGE_RAG_INLINE typename V::Floats seen_lanes(const Seen& seen, int64_t t, typename V::Floats x,
                                              typename V::Floats otherwise) {
  const auto before_end = V::first_lanes(seen.end - t, x, otherwise);
  return t >= seen.begin ? before_end : V::first_lanes(seen.begin - t, otherwise, before_end);
}

// One block of a sequence's context for one kv head: up to kBlockTokens tokens, on consecutive pages of its table. What
// lies on pages before the first that some row sees is not filled in.
struct Block {
  const uint8_t* keys[kBlockVectors];
  const uint8_t* values[kBlockVectors];
  int64_t begin;  // position of its first token
  Seen seen;      // by some row
  alignas(64) float key_scale[kBlockTokens];
  alignas(64) float value_scale[kBlockTokens];
  alignas(64) float value_share[kBlockTokens];  // of a whole block: the scale in units of the weights
  float value_unit;                             // of a whole block: what a weight of 1 stands for
};

// The largest of the value scales of the seen tokens of a block.
template <class V>
EDGE_RAG_INLINE float largest_value_scale(const Block& block, const Seen& seen) {
  const auto none = V::set(0.0f);
  auto largest = none;
  for (int64_t t = seen.begin / kLanes * kLanes; t < seen.end; t += kLanes) {
    largest = V::larger(largest, seen_lanes<V>(seen, t, V::load(block.value_scale + t), none));
  }
  return V::largest(largest);
}

EDGE_RAG_INLINE float reciprocal_unit(float largest) { return largest > 0.0f ? kRowLimit / largest : 0.0f; }

template <class V>
EDGE_RAG_INLINE void open_block(const Step& step, const RowRange& range, int64_t begin, const Seen& seen,
                                Block& block) {
  const PageLayout& layout = step.layout;
  const int32_t* table = step.block_table + range.sequence * step.table_width + begin / layout.page_tokens;
  block.begin = begin;
  block.seen = seen;
  for (int64_t p = seen.begin / layout.page_tokens; p * layout.page_tokens < seen.end; ++p) {
    const uint8_t* page = step.pages + table[p] * step.page_bytes;
    block.keys[p] = page + layout.key(range.kv_head);
    block.values[p] = page + layout.value(range.kv_head);
    const uint8_t* key_scale = page + layout.key_scale(range.kv_head);
    const uint8_t* value_scale = page + layout.value_scale(range.kv_head);
    const int64_t at = p * layout.page_tokens;
    for (int64_t t = 0; t < layout.page_tokens; t += kLanes) {
      V::store(block.key_scale + at + t, V::load(reinterpret_cast<const float*>(key_scale) + t));
      V::store(block.value_scale + at + t, V::load(reinterpret_cast<const float*>(value_scale) + t));
    }
  }
  if (!seen.all()) return;
  const float largest = largest_value_scale<V>(block, seen);
  block.value_unit = largest / kRowLimit;
  const auto inverse = V::set(reciprocal_unit(largest));
  for (int64_t t = 0; t < kBlockTokens; t += kLanes) {
    V::store(block.value_share + t, V::multiply(V::load(block.value_scale + t), inverse));
  }
}

// Fetches into the second-level cache the keys and values of the block that begins at a position, up to the context's end.
// Pages lie anywhere, so that the processor does not see what comes next.
EDGE_RAG_INLINE void prefetch_block(const Step& step, const RowRange& range, int64_t begin, int64_t end) {
  const PageLayout& layout = step.layout;
  const int32_t* const table = step.block_table + range.sequence * step.table_width;
  if (begin + kBlockTokens < end) end = begin + kBlockTokens;
  for (int64_t position = begin; position < end; position += layout.page_tokens) {
    const uint8_t* const page = step.pages + table[position / layout.page_tokens] * step.page_bytes;
    const uint8_t* const from = page + layout.key(range.kv_head);
    for (int64_t i = 0; i < layout.head_bytes(); i += kLineBytes) __builtin_prefetch(from + i, 0, 2);
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

// The same for a row that sees a part of a block's tokens only: none of the others may show in its result.
template <class V>
__attribute__((noinline)) void weigh_seen(const Block& block, const Seen& seen, float query_scale, int64_t r,
                                          BlockSoftmax& softmax) {
  const auto scale = V::set(query_scale);
  const auto none = V::set(0.0f);
  auto maximum = V::set(kMinusInfinity);
  for (int64_t t = seen.begin / kLanes * kLanes; t < seen.end; t += kLanes) {
    const auto scores = V::multiply(V::load(softmax.scores[r] + t), scale);
    maximum = V::larger(maximum, seen_lanes<V>(seen, t, scores, V::set(kMinusInfinity)));
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
      if (t >= seen.end || t + kLanes <= seen.begin) continue;
      const auto scores = V::multiply(V::load(softmax.scores[r] + t), scale);
      const auto power = seen_lanes<V>(seen, t, power_of_two<V>(V::subtract(scores, maximum)), none);
      const auto share = V::multiply(V::load(block.value_scale + t), inverse);
      sum = V::add(sum, power);
      weights[i] = V::round(V::multiply(power, seen_lanes<V>(seen, t, share, none)));
    }
    V::template store_row_of_64<kBlockTokens>(softmax.weights + r * 2 * kBlockTokens, part, weights);
  }
  V::store(softmax.sums[r], sum);
}

// Turns a row's scores of a stretch of tokens into softcap * tanh(score / softcap), in powers of two.
template <class V>
__attribute__((noinline)) void cap_scores(float softcap, float query_scale, int64_t begin, int64_t end, float* scores) {
  const float bound = softcap * kLog2E;
  const auto scale = V::set(query_scale);
  const auto inverse = V::set(1.0f / bound);
  for (int64_t t = begin; t < end; t += kLanes) {
    const auto score = V::multiply(V::multiply(V::load(scores + t), scale), inverse);
    V::store(scores + t, V::multiply(hyperbolic_tangent<V>(score), V::set(bound)));
  }
}

}  // namespace
}  // namespace edge_rag
