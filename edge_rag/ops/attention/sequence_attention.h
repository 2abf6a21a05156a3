#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::SequenceAttention, version 1: attention of an encoder over sequences that lie end to end, without
// padding. Every token attends to all tokens of its own sequence, or to those of its window, and to no other.
//
// Inputs:
//   0 qkv                          float [T, 3 * num_heads * head size]: queries, keys, values; each head after head
//   1 cumulative_sequence_lengths  int32 [S + 1]: sequence s has tokens [at s, at s + 1); from 0 to T, never falling
// Output: float [T, num_heads * head size].
// Attributes: num_heads, scale (of the scores), window (optional; a token attends to those at most so many tokens away;
// 0, the default: to all). The head size is a multiple of 16.
// A token's result is the same bits whatever the other sequences and the number of threads, and whichever kernel build
// runs.
const OrtCustomOp& sequence_attention_op();

}  // namespace edge_rag
