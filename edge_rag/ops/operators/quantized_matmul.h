#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::QuantizedMatMul, version 1: activations times a matrix of 4- or 8-bit weights.
//
// Inputs:
//   0 a            float [.., K]
//   1 weights      uint8 [panels, bytes of a panel]; the layout is quantized_matrix.h
//   2 scales       float, float16 or uint8 [panels, blocks, 16]
//   3 zero_points  uint8 [panels, blocks, 16], optional, with scales of float only; without them and without minima every
//                  zero point is 8, or 128 with 8 bits
//   4 bias         float [N], optional, not with a gate: added to the product
//   5 minima       of the scales' type and shape, optional, not with zero_points: weight = integer * scale + minimum
//   6 scale_factors, 7 minimum_factors
//                  float [panels, groups, 16], for scales and minima of uint8, which count these; groups divides blocks,
//                  and a group is as many consecutive blocks
// Output: float [.., N]; with a gate [.., N/2].
// Attributes: K, N, bits (4 or 8), block_size (a multiple of 8), gated (0 or 1, default 0), gelu (0 or 1, default
// 0, not with a gate), wide_block (default 0).
// With a wide_block the weights are constants of 4 bits with neither zero points nor minima nor factors, and are
// multiplied as 8 bits with a scale for every wide_block of K, to which they are rounded at the first call and kept:
// faster where there are many rows, for twice the weights' memory more.
// With gated = 1 the matrix is a gate and its operand, alternating panel by panel, and the result is silu(gate) *
// operand (Shazeer, GLU variants improve Transformer, 2020). With gelu = 1 it is gelu(product + bias).
// Each row of activations is quantized to 8 bits with a scale for every block of K. A row's result is the same bits
// whatever the other rows, and whichever kernel build runs; what is not finite in a row makes that row NaN.
const OrtCustomOp& quantized_matmul_op();

}  // namespace edge_rag
