#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::SequenceSum, version 1: sums the rows of each sequence.
//
// Inputs:
//   0 x                            float [T, H]
//   1 cumulative_sequence_lengths  int32 [S + 1]: sequence s has rows [at s, at s + 1); from 0 to T, never falling
// Output: float [S, H]; zeros for a sequence without rows.
const OrtCustomOp& sequence_sum_op();

}  // namespace edge_rag
