#include "quantized_operand.h"

#include <algorithm>

namespace edge_rag {
namespace {

constexpr int64_t kMaxSide = int64_t{1} << 31;

Stored stored_as(int type) {
  require(type == kOrtFloat || type == kOrtFloat16 || type == kOrtUint8, "scales have type ", int64_t{type},
          ", must be float, float16 or uint8");
  return type == kOrtFloat ? Stored::kFloat : type == kOrtFloat16 ? Stored::kHalf : Stored::kByte;
}

}  // namespace

QuantizedMatrix matrix_attributes(const OrtApi* api, const OrtKernelInfo* info, bool gated) {
  QuantizedMatrix matrix{};
  matrix.rows = attribute<int64_t>(api, info, "K");
  matrix.columns = attribute<int64_t>(api, info, "N");
  matrix.bits = attribute<int64_t>(api, info, "bits");
  const int64_t block_size = attribute<int64_t>(api, info, "block_size");
  require(matrix.rows > 0 && matrix.rows <= kMaxSide, "K is ", matrix.rows);
  require(matrix.columns > 0 && matrix.columns <= kMaxSide, "N is ", matrix.columns);
  require(matrix.bits == 4 || matrix.bits == 8, "bits is ", matrix.bits, ", must be 4 or 8");
  require(block_size > 0 && block_size % kRowPadding == 0, "block_size is ", block_size, ", must be a multiple of ",
          kRowPadding);
  matrix.block_rows = std::min(block_size, matrix.padded_rows());
  matrix.blocks = (matrix.rows + matrix.block_rows - 1) / matrix.block_rows;
  require(matrix.block_rows <= kMaxBlockRows, "a block has ", matrix.block_rows, " rows, at most ", kMaxBlockRows,
          " can be summed");
  require(!gated || matrix.columns % 2 == 0, "N is ", matrix.columns, ", with a gate it must be even");
  const int64_t columns = gated ? matrix.columns / 2 : matrix.columns;
  matrix.panels = (columns + kLanes - 1) / kLanes * (gated ? 2 : 1);
  return matrix;
}

int matrix_input_type(size_t index) {
  switch (index) {
    case kWeights:
    case kZeroPoints: return kOrtUint8;
    case kScales:
    case kMinima: return kOrtAnyType;
    default: return kOrtFloat;
  }
}

QuantizedMatrix matrix_inputs(const OrtApi* api, const OrtKernelContext* context, QuantizedMatrix matrix) {
  const auto weights = input<const uint8_t>(api, context, kWeights);
  const auto scales = input<const void>(api, context, kScales);
  const auto zero_points = input<const uint8_t>(api, context, kZeroPoints);
  const auto minima = input<const void>(api, context, kMinima);
  const auto scale_factors = input<const float>(api, context, kScaleFactors);
  const auto minimum_factors = input<const float>(api, context, kMinimumFactors);
  require_shape("weights", weights.dims, {matrix.panels, matrix.panel_bytes()});
  require_shape("scales", scales.dims, {matrix.panels, matrix.blocks, kLanes});
  matrix.stored = stored_as(scales.type);
  if (zero_points.present) {
    require_shape("zero_points", zero_points.dims, scales.dims);
    require(!minima.present, "there are zero_points and minima");
    require(matrix.stored == Stored::kFloat, "with zero_points, scales must be float");
  }
  if (minima.present) {
    require_shape("minima", minima.dims, scales.dims);
    require(minima.type == scales.type, "minima have type ", int64_t{minima.type}, ", scales ", int64_t{scales.type});
  }
  const bool bytes = matrix.stored == Stored::kByte;
  require(scale_factors.present == bytes, "scale_factors are for scales of uint8, and needed there");
  require(minimum_factors.present == (bytes && minima.present),
          "minimum_factors are for minima of uint8, and needed there");
  matrix.group_blocks = matrix.blocks;
  if (bytes) {
    const int64_t groups = scale_factors.dims.size() == 3 ? scale_factors.dims[1] : 0;
    require(groups > 0 && matrix.blocks % groups == 0, "scale_factors has shape ", scale_factors.dims,
            ", the second must divide ", matrix.blocks);
    require_shape("scale_factors", scale_factors.dims, {matrix.panels, groups, kLanes});
    if (minima.present) require_shape("minimum_factors", minimum_factors.dims, scale_factors.dims);
    matrix.group_blocks = matrix.blocks / groups;
  }
  matrix.weights = weights.data;
  matrix.scales = scales.data;
  matrix.zero_points = zero_points.data;
  matrix.minima = minima.data;
  matrix.scale_factors = scale_factors.data;
  matrix.minimum_factors = minimum_factors.data;
  return matrix;
}

}  // namespace edge_rag
