#include "quantized_operand.h"

#include <algorithm>

namespace edge_rag {
namespace {

constexpr int64_t kMaxSide = int64_t{1} << 31;

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

QuantizedMatrix matrix_inputs(const OrtApi* api, const OrtKernelContext* context, size_t first,
                              QuantizedMatrix matrix) {
  const auto weights = input<const uint8_t>(api, context, first);
  const auto scales = input<const float>(api, context, first + 1);
  const auto zero_points = input<const uint8_t>(api, context, first + 2);
  require_shape("weights", weights.dims, {matrix.panels, matrix.panel_bytes()});
  require_shape("scales", scales.dims, {matrix.panels, matrix.blocks, kLanes});
  if (zero_points.present) require_shape("zero_points", zero_points.dims, scales.dims);
  matrix.weights = weights.data;
  matrix.scales = scales.data;
  matrix.zero_points = zero_points.data;
  return matrix;
}

}  // namespace edge_rag
