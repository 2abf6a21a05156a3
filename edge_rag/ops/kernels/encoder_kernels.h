// The arithmetic of text encoders between their matrix products, once per instruction set; every build computes the same
// bits. What a token comes to depends on the tokens of its own sequence only.
#pragma once

#include <cstdint>

#include "inlined.h"
#include "page_layout.h"

namespace edge_rag {

// Queries, keys and values of sequences that lie end to end, and where the result goes.
struct PackedHeads {
  const float* data;  // [tokens][3][heads][head_size]
  int64_t heads;
  int64_t head_size;  // a multiple of kLanes
  float scale;        // of the scores
  int64_t window;     // tokens before and behind a token that it attends to; 0: all of its sequence
  float* output;      // [tokens][heads][head_size]

  EDGE_RAG_INLINE int64_t width() const { return heads * head_size; }
};

// One head of one sequence.
struct SequenceHead {
  int64_t begin;  // tokens [begin, end)
  int64_t end;
  int64_t head;
  float* room;  // room_floats(end - begin, head_size), aligned to 64 bytes
};

// Queries whose scores are kept at a time.
constexpr int64_t kQueryRows = 8;

// What one head of a sequence needs to be worked on: its keys and values, kQueryRows queries and their scores.
EDGE_RAG_INLINE int64_t room_floats(int64_t tokens, int64_t head_size) {
  return (tokens + kLanes - 1) / kLanes * kLanes * (2 * head_size + kQueryRows) + kQueryRows * head_size;
}

// Rows that are normalized: output = (x - mean) / sqrt(variance + epsilon) * scale + bias of x = data + skip.
struct NormRows {
  const float* data;  // [rows][columns]
  const float* skip;  // the same, or null
  const float* scale;  // [columns]
  const float* bias;   // [columns]
  int64_t columns;     // a multiple of kLanes
  float epsilon;
  float* output;
};

struct EncoderKernels {
  // Every token of a sequence attends to all of them, or to those of its window.
  void (*attend_sequence)(const PackedHeads& heads, const SequenceHead& part);

  // Normalizes rows [begin, end).
  void (*normalize)(const NormRows& rows, int64_t begin, int64_t end);
};

}  // namespace edge_rag
