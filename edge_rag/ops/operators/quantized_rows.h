#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::QuantizedRows, version 1: columns of a matrix as QuantizedMatMul takes it, as rows of floats. It
// looks tokens up in the matrix that also makes the logits.
//
// Inputs:
//   0 indices      int64 [..], each in [0, N)
//   1 weights, 2 scales, 3 zero_points, 5 minima, 6 scale_factors, 7 minimum_factors as those of QuantizedMatMul
//   4 is not used
// Output: float [.., K]: (integer - zero point) * scale, rounded once; or integer * scale + minimum, rounded twice.
// Attributes: K, N, bits (4 or 8), block_size (a multiple of 8).
const OrtCustomOp& quantized_rows_op();

}  // namespace edge_rag
