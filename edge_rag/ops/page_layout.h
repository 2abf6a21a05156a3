// What a KV page is: for one layer and page_tokens tokens, one block per kv head, each holding
//   K  int8  [head_size][page_tokens]   transposed, so that consecutive tokens are consecutive bytes
//   Ks float [page_tokens]              K[t] = Ks[t] * int8
//   V  int8  [page_tokens][head_size]
//   Vs float [page_tokens]
// A page holds no pointer and no position: copying its bytes copies the tokens.
#pragma once

#include <cstdint>

namespace edge_rag {

constexpr int64_t kMaxPageTokens = 64;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kTokenLanes = 16;     // page_tokens is a multiple of this
constexpr int64_t kHeadSizeStep = 8;    // head_size is a multiple of this

struct PageLayout {
  int64_t head_size;
  int64_t page_tokens;

  int64_t quantized_bytes() const { return head_size * page_tokens; }
  int64_t scale_bytes() const { return page_tokens * static_cast<int64_t>(sizeof(float)); }
  int64_t head_bytes() const { return 2 * (quantized_bytes() + scale_bytes()); }

  int64_t key(int64_t head) const { return head * head_bytes(); }
  int64_t key_scale(int64_t head) const { return key(head) + quantized_bytes(); }
  int64_t value(int64_t head) const { return key_scale(head) + scale_bytes(); }
  int64_t value_scale(int64_t head) const { return value(head) + quantized_bytes(); }
};

}  // namespace edge_rag
