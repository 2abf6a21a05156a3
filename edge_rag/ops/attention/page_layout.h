// What a KV page is: for one layer and page_tokens tokens, one block per kv head, each holding
//   K  uint8 [head_size / 4][page_tokens][4]  K[t][d] = Ks[t] * (byte - 128)
//   Ks float [page_tokens]
//   V  int8  [page_tokens / 4][head_size][4]  V[t][d] = Vs[t] * byte
//   Vs float [page_tokens]
// The innermost 4 are what a dot-product instruction sums: dimensions for K (a score sums over dimensions), tokens for
// V (an output sums over tokens). K is biased because those instructions take one unsigned operand.
// A page holds no pointer and no position: copying its bytes copies the tokens.
#pragma once

#include <cstdint>

#include "inlined.h"

namespace edge_rag {

constexpr int64_t kMaxPageTokens = 64;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kLanes = 16;        // page_tokens is a multiple of this
constexpr int64_t kHeadSizeStep = 8;  // head_size is a multiple of this
constexpr int64_t kQuad = 4;          // consecutive bytes that are summed by one instruction
constexpr int32_t kKeyBias = 128;

struct PageLayout {
  int64_t head_size;
  int64_t page_tokens;

  EDGE_RAG_INLINE int64_t quantized_bytes() const { return head_size * page_tokens; }
  EDGE_RAG_INLINE int64_t scale_bytes() const { return page_tokens * static_cast<int64_t>(sizeof(float)); }
  EDGE_RAG_INLINE int64_t head_bytes() const { return 2 * (quantized_bytes() + scale_bytes()); }

  EDGE_RAG_INLINE int64_t key(int64_t head) const { return head * head_bytes(); }
  EDGE_RAG_INLINE int64_t key_scale(int64_t head) const { return key(head) + quantized_bytes(); }
  EDGE_RAG_INLINE int64_t value(int64_t head) const { return key_scale(head) + scale_bytes(); }
  EDGE_RAG_INLINE int64_t value_scale(int64_t head) const { return value(head) + quantized_bytes(); }
};

}  // namespace edge_rag
