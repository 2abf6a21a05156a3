// How the ops on quantized matrices take the matrix from ONNX Runtime.
#pragma once

#include "ort_tensor.h"
#include "quantized_matrix.h"

namespace edge_rag {

// Attributes of a matrix: K rows, N columns, bits (4 or 8), block_size (a multiple of 8; K or more is one block).
// Returns the matrix without its data; throws InvalidInput for attributes that make no sense.
QuantizedMatrix matrix_attributes(const OrtApi* api, const OrtKernelInfo* info, bool gated);

// Inputs from `first` on: weights uint8 [panels, bytes of a panel], scales float [panels, blocks, 16], zero points uint8
// [panels, blocks, 16] or absent. Their data is used where it lies.
QuantizedMatrix matrix_inputs(const OrtApi* api, const OrtKernelContext* context, size_t first, QuantizedMatrix matrix);

}  // namespace edge_rag
