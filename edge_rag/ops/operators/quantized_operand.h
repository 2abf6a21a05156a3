// How the ops on quantized matrices take the matrix from ONNX Runtime.
#pragma once

#include "ort_tensor.h"
#include "quantized_matrix.h"

namespace edge_rag {

// Attributes of a matrix: K rows, N columns, bits (4 or 8), block_size (a multiple of 8; K or more is one block).
// Returns the matrix without its data; throws InvalidInput for attributes that make no sense.
QuantizedMatrix matrix_attributes(const OrtApi* api, const OrtKernelInfo* info, bool gated);

// The inputs that hold a matrix; kOther is the op's own.
enum MatrixInput : size_t {
  kWeights = 1,
  kScales,
  kZeroPoints,
  kOther,
  kMinima,
  kScaleFactors,
  kMinimumFactors,
  kMatrixInputEnd
};

int matrix_input_type(size_t index);
inline bool is_optional_of_matrix(size_t index) { return index >= kZeroPoints; }

// Takes the matrix from the inputs: weights uint8 [panels, bytes of a panel]; scales float, float16 or uint8 [panels,
// blocks, 16]; zero points uint8 of the scales' shape or absent, minima of the scales' type and shape or absent; with
// scales of uint8 the factors, float [panels, groups, 16], where groups divides blocks. Their data is used where it lies.
// Throws InvalidInput for other types and shapes, and for inputs that exclude each other.
QuantizedMatrix matrix_inputs(const OrtApi* api, const OrtKernelContext* context, QuantizedMatrix matrix);

}  // namespace edge_rag
