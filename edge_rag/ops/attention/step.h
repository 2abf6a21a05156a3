// One call of the op: every pointer and size it works on. Built only by paged_attention.cpp, which has checked all of it.
#pragma once

#include <cstdint>

#include "page_layout.h"

namespace edge_rag {

// The heads of one operand: token t, head h starts at data + t * token_stride + h * head_size.
struct Heads {
  const float* data;
  int64_t token_stride;
};

struct Step {
  PageLayout layout;
  int64_t query_heads;
  int64_t kv_heads;
  float scale;     // of the scores
  int64_t window;  // tokens that a token sees, itself the last of them
  float softcap;   // bound of the scores' magnitudes; 0 for none

  int64_t tokens;
  Heads query;
  Heads key;
  Heads value;

  uint8_t* pages;  // [pages, page_bytes]
  int64_t page_bytes;

  const float* cosine;  // [positions, rotary_pairs]
  const float* sine;
  int64_t rotary_pairs;  // head dimensions i and i + rotary_pairs are rotated together; the rest pass through

  const int32_t* positions;    // [tokens]
  const int32_t* slots;        // [tokens] page * page_tokens + offset
  const int32_t* block_table;  // [sequences, table_width]
  int64_t table_width;

  float* output;  // [tokens, query_heads, head_size]

  EDGE_RAG_INLINE int64_t group() const { return query_heads / kv_heads; }

  // The first position that the token at a position sees.
  EDGE_RAG_INLINE int64_t first_seen(int64_t position) const { return position < window ? 0 : position - window + 1; }
};

}  // namespace edge_rag
