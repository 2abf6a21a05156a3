#include "quantized_rows.h"

#include <algorithm>
#include <vector>

#include "custom_op.h"
#include "half.h"
#include "kernels.h"
#include "ort_tensor.h"
#include "quantized_operand.h"

namespace edge_rag {
namespace {

constexpr size_t kIndices = 0;

// Elements that one task looks up.
constexpr int64_t kTaskElements = 1 << 13;

struct Kernel {
  const OrtApi* api;
  QuantizedMatrix matrix;  // without its data
};

// Element of a row of the matrix, in the panel and lane that `bytes` points to the first quad of.
int32_t integer_at(const QuantizedMatrix& matrix, const uint8_t* bytes, int64_t row) {
  const int64_t line = matrix.bits == 4 ? 2 * kQuad : kQuad;
  const uint8_t byte = bytes[row / line * kLineBytes + row % kQuad];
  if (matrix.bits == 8) return byte;
  return row % line < kQuad ? byte & 15 : byte >> 4;
}

// Scale or minimum `at` of its place.
float stored_value(Stored stored, const void* from, int64_t at, const float* factors, int64_t factor) {
  switch (stored) {
    case Stored::kFloat: return static_cast<const float*>(from)[at];
    case Stored::kHalf: return half_to_float(static_cast<const uint16_t*>(from)[at]);
    case Stored::kByte: return static_cast<float>(static_cast<const uint8_t*>(from)[at]) * factors[factor];
  }
  return 0.0f;
}

void look_up(const QuantizedMatrix& matrix, int64_t column, float* out) {
  const int64_t panel = column / kLanes;
  const int64_t lane = column % kLanes;
  const uint8_t* const bytes = matrix.weights + panel * matrix.panel_bytes() + lane * kQuad;
  for (int64_t block = 0; block < matrix.blocks; ++block) {
    const int64_t at = matrix.at_scale(panel, block) + lane;
    const int64_t factor = matrix.at_factor(panel, block) + lane;
    const float scale = stored_value(matrix.stored, matrix.scales, at, matrix.scale_factors, factor);
    const bool minima = matrix.zero() == Zero::kMinima;
    const float minimum = minima ? stored_value(matrix.stored, matrix.minima, at, matrix.minimum_factors, factor) : 0.0f;
    const int32_t zero = minima ? 0 : matrix.zero_points == nullptr ? matrix.middle() : matrix.zero_points[at];
    const int64_t end = std::min(matrix.rows, (block + 1) * matrix.block_rows);
    for (int64_t row = block * matrix.block_rows; row < end; ++row) {
      const float product = static_cast<float>(integer_at(matrix, bytes, row) - zero) * scale;
      out[row] = minima ? product + minimum : product;
    }
  }
}

void compute(const Kernel& kernel, OrtKernelContext* context) {
  const auto indices = input<const int64_t>(kernel.api, context, kIndices);
  const QuantizedMatrix matrix = matrix_inputs(kernel.api, context, kernel.matrix);
  int64_t count = 1;
  for (const int64_t dim : indices.dims) count *= dim;
  for (int64_t i = 0; i < count; ++i) {
    require(indices.data[i] >= 0 && indices.data[i] < matrix.columns, "index ", indices.data[i], " is outside [0, ",
            matrix.columns, ")");
  }
  std::vector<int64_t> dims = indices.dims;
  dims.push_back(matrix.rows);
  float* const out = output<float>(kernel.api, context, dims);
  const int64_t of_task = std::max<int64_t>(1, kTaskElements / matrix.rows);
  const int64_t tasks = (count + of_task - 1) / of_task;
  parallel_for(kernel.api, context, static_cast<size_t>(tasks), [&](size_t task) {
    const int64_t begin = static_cast<int64_t>(task) * of_task;
    for (int64_t i = begin; i < std::min(count, begin + of_task); ++i) {
      look_up(matrix, indices.data[i], out + i * matrix.rows);
    }
  });
}

class QuantizedRows {
 public:
  static constexpr const char* kName = "QuantizedRows";
  static constexpr size_t kInputs = kMatrixInputEnd;
  static int input_type(size_t index) { return index == kIndices ? kOrtInt64 : matrix_input_type(index); }
  static bool is_optional(size_t index) { return is_optional_of_matrix(index); }

  QuantizedRows(const OrtApi* api, const OrtKernelInfo* info) : kernel_({api, matrix_attributes(api, info, false)}) {}

  void compute(OrtKernelContext* context) const { edge_rag::compute(kernel_, context); }
  const OrtApi* api() const { return kernel_.api; }

 private:
  Kernel kernel_;
};

}  // namespace

const OrtCustomOp& quantized_rows_op() {
  static const OrtCustomOp op = describe_op<QuantizedRows>();
  return op;
}

}  // namespace edge_rag
