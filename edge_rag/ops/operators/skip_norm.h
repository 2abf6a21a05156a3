#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::SkipLayerNormalization, version 1: layer normalization (Ba et al., 2016) of a sum.
//
// Inputs:
//   0 x      float [T, H]; H is a multiple of 16
//   1 scale  float [H]
//   2 bias   float [H]
//   3 skip   float [T, H], optional: added to x first
// Output: float [T, H].
// Attributes: epsilon.
// A row's result is the same bits whatever the other rows, and whichever kernel build runs.
const OrtCustomOp& skip_norm_op();

}  // namespace edge_rag
