// Attention over INT8 pages with an online softmax (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022):
// one pass over the pages, keeping for each row the running maximum, the running sum and the unnormalized output.
// A row's arithmetic does not depend on which other rows are in the tile, so a result is the same in every batch.
#include "attend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// One copy of the kernel per instruction set, chosen when the library is loaded. Sanitizers run before the resolvers
// could, so instrumented builds have the portable copy only.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(EDGE_RAG_PORTABLE)
#define EDGE_RAG_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EDGE_RAG_MULTIVERSION
#endif

namespace edge_rag {
namespace {

constexpr int64_t kRows = 32;  // rows (query tokens x grouped heads) that share one widening of a page

// A page of one kv head, widened once for all rows. The scales stay apart: K's multiplies the score, V's the weight.
struct WidePage {
  float key[kMaxHeadSize * kMaxPageTokens];    // [head_size][page_tokens]
  float value[kMaxPageTokens * kMaxHeadSize];  // [page_tokens][head_size]
  float key_scale[kMaxPageTokens];
  float value_scale[kMaxPageTokens];
};

struct Row {
  int64_t position;
  const float* query;
  float* output;
  float maximum;
  float sum;
};

__attribute__((always_inline)) inline void widen(const int8_t* page, const PageLayout& layout, int64_t kv_head,
                                                 int64_t tokens, WidePage& wide) {
  const int8_t* key = page + layout.key(kv_head);
  const int8_t* value = page + layout.value(kv_head);
  for (int64_t i = 0; i < layout.quantized_bytes(); ++i) wide.key[i] = static_cast<float>(key[i]);
  for (int64_t i = 0; i < tokens * layout.head_size; ++i) wide.value[i] = static_cast<float>(value[i]);
  std::memcpy(wide.key_scale, page + layout.key_scale(kv_head), static_cast<size_t>(layout.scale_bytes()));
  std::memcpy(wide.value_scale, page + layout.value_scale(kv_head), static_cast<size_t>(layout.scale_bytes()));
}

__attribute__((always_inline)) inline void score(const float* query, const WidePage& wide, const PageLayout& layout,
                                                 float* scores) {
  for (int64_t block = 0; block < layout.page_tokens; block += kTokenLanes) {
    float sums[kTokenLanes] = {};
    for (int64_t d = 0; d < layout.head_size; ++d) {
      const float* key = wide.key + d * layout.page_tokens + block;
      for (int64_t lane = 0; lane < kTokenLanes; ++lane) sums[lane] += query[d] * key[lane];
    }
    for (int64_t lane = 0; lane < kTokenLanes; ++lane) {
      scores[block + lane] = sums[lane] * wide.key_scale[block + lane];
    }
  }
}

// e^x for x <= 0, as 2^n * p(f) with f in [-1/2, 1/2]; relative error below 3e-7. Adding 1.5 * 2^23 rounds to an
// integer and leaves it in the low bits of the sum.
__attribute__((always_inline)) inline float exp_nonpositive(float x) {
  constexpr float kRound = 12582912.0f;
  const float clamped = x < -87.0f ? -87.0f : x;
  const float scaled = clamped * 1.44269504088896341f;
  const float shifted = scaled + kRound;
  const float fraction = scaled - (shifted - kRound);
  float power = 1.5403530e-4f;
  power = power * fraction + 1.3333558e-3f;
  power = power * fraction + 9.6181291e-3f;
  power = power * fraction + 5.5504109e-2f;
  power = power * fraction + 2.4022651e-1f;
  power = power * fraction + 6.9314718e-1f;
  power = power * fraction + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits - 0x4B400000u + 127u) << 23;
  float exponent;
  std::memcpy(&exponent, &bits, sizeof(exponent));
  return power * exponent;
}

__attribute__((always_inline)) inline void accumulate(Row& row, const WidePage& wide, const PageLayout& layout,
                                                      int64_t tokens) {
  float weights[kMaxPageTokens];
  score(row.query, wide, layout, weights);

  float maximum = row.maximum;
  for (int64_t t = 0; t < tokens; ++t) maximum = std::max(maximum, weights[t]);
  const float decay = exp_nonpositive(row.maximum - maximum);
  for (int64_t t = 0; t < layout.page_tokens; ++t) weights[t] = exp_nonpositive(weights[t] - maximum);
  float sum = 0.0f;
  for (int64_t t = 0; t < tokens; ++t) sum += weights[t];
  row.maximum = maximum;
  row.sum = row.sum * decay + sum;

  for (int64_t t = 0; t < layout.page_tokens; ++t) weights[t] *= wide.value_scale[t];
  float* __restrict__ output = row.output;
  for (int64_t d = 0; d < layout.head_size; ++d) output[d] *= decay;
  for (int64_t t = 0; t < tokens; ++t) {
    const float weight = weights[t];
    const float* value = wide.value + t * layout.head_size;
    for (int64_t d = 0; d < layout.head_size; ++d) output[d] += weight * value[d];
  }
}

EDGE_RAG_MULTIVERSION
void attend_rows(const Step& step, const int32_t* table, int64_t kv_head, Row* rows, int64_t count) {
  const PageLayout& layout = step.layout;
  int64_t furthest = 0;
  for (int64_t r = 0; r < count; ++r) furthest = std::max(furthest, rows[r].position);

  WidePage wide;
  for (int64_t first = 0; first <= furthest; first += layout.page_tokens) {
    const int8_t* page = step.pages + table[first / layout.page_tokens] * step.page_bytes;
    widen(page, layout, kv_head, std::min(layout.page_tokens, furthest + 1 - first), wide);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t visible = std::min(layout.page_tokens, rows[r].position + 1 - first);
      if (visible > 0) accumulate(rows[r], wide, layout, visible);
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    const float inverse = 1.0f / rows[r].sum;
    for (int64_t d = 0; d < layout.head_size; ++d) rows[r].output[d] *= inverse;
  }
}

}  // namespace

void attend_tile(const Step& step, const QueryTile& tile, int64_t kv_head) {
  const int64_t size = step.layout.head_size;
  const int64_t group = step.group();
  const int64_t rows_in_tile = (tile.end - tile.begin) * group;
  const int32_t* table = step.block_table + tile.sequence * step.table_width;

  Row rows[kRows];
  for (int64_t begin = 0; begin < rows_in_tile; begin += kRows) {
    const int64_t count = std::min(kRows, rows_in_tile - begin);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t token = tile.begin + (begin + r) / group;
      const int64_t head = kv_head * group + (begin + r) % group;
      const int64_t at = (token * step.query_heads + head) * size;
      rows[r] = {step.positions[token], step.rotated.data() + at, step.output + at,
                 -std::numeric_limits<float>::infinity(), 0.0f};
      std::fill(rows[r].output, rows[r].output + size, 0.0f);
    }
    attend_rows(step, table, kv_head, rows, count);
  }
}

}  // namespace edge_rag
