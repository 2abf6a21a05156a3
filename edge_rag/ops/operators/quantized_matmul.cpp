#include "quantized_matmul.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "custom_op.h"
#include "kernels.h"
#include "ort_tensor.h"
#include "quantized_operand.h"
#include "wide_matrix.h"

namespace edge_rag {
namespace {

enum Input : size_t { kActivations, kBias = kOther };

struct Kernel {
  const OrtApi* api;
  const QuantizedKernels* build;
  QuantizedMatrix matrix;  // without its data
  Epilogue epilogue;
  int64_t wide_block;  // or 0
};

// The wide form of an op's weights, made once.
struct WideWeights {
  std::once_flag made;
  WideMatrix matrix;
};

// Quantized activations of one call, at most this many bytes of them (or those of a few rows, if they are longer): more
// rows than that are multiplied one part after the other.
constexpr int64_t kMaxActivationBytes = int64_t{4} << 20;

// A strip's activations are to stay in the second-level cache.
constexpr int64_t kStripBytes = int64_t{640} << 10;

// Elements below which several threads cost more than they save.
constexpr int64_t kSerialElements = 1 << 15;
constexpr int64_t kSerialWeightBytes = 1 << 15;
constexpr int64_t kTasks = 32;

int64_t divided_up(int64_t total, int64_t by) { return (total + by - 1) / by; }
int64_t rounded_up(int64_t total, int64_t multiple) { return divided_up(total, multiple) * multiple; }

// The room that the activations of one thread's calls have, kept from call to call.
class Room {
 public:
  Activations take(const QuantizedMatrix& matrix, int64_t count) {
    const int64_t rows = count == 1 ? 1 : rounded_up(count, 2);
    const int64_t stride = rounded_up(matrix.block_rows, kLanes);
    const int64_t cells = matrix.blocks * rows;
    grow(integers_, static_cast<size_t>(cells * stride));
    grow(scales_, static_cast<size_t>(cells));
    grow(sums_, static_cast<size_t>(cells));
    grow(offsets_, static_cast<size_t>(cells));
    return {integers_.data(), scales_.data(), sums_.data(), offsets_.data(), rows, stride};
  }

 private:
  template <class Element>
  static void grow(std::vector<Element>& room, size_t size) {
    if (room.size() < size) room.resize(size);
  }

  std::vector<int8_t> integers_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  std::vector<int32_t> offsets_;
};

void quantize(const Kernel& kernel, const OrtKernelContext* context, const QuantizedMatrix& matrix, const float* in,
              int64_t rows, const Activations& out) {
  const int64_t rows_of_task = std::max<int64_t>(1, kSerialElements / matrix.rows);
  if (rows <= rows_of_task) return kernel.build->quantize(in, matrix, 0, rows, out);
  const int64_t tasks = divided_up(rows, rows_of_task);
  parallel_for(kernel.api, context, static_cast<size_t>(tasks), [&](size_t task) {
    const int64_t begin = static_cast<int64_t>(task) * rows_of_task;
    kernel.build->quantize(in, matrix, begin, std::min(rows, begin + rows_of_task), out);
  });
}

void multiply(const Kernel& kernel, const OrtKernelContext* context, const QuantizedMatrix& matrix,
              const Activations& activations, int64_t rows, const ProductOutput& out) {
  const int64_t groups = divided_up(matrix.panels, kPartPanels);
  const int64_t strips = divided_up(rows, std::min(kStripRows, std::max<int64_t>(1, kStripBytes / matrix.padded_rows())));
  const int64_t strip = rounded_up(divided_up(rows, strips), 2);
  const int64_t wanted = std::min(kTasks, matrix.panels * matrix.panel_bytes() / kSerialWeightBytes);
  const int64_t groups_of_task = divided_up(groups, std::max<int64_t>(1, wanted));
  const int64_t columns = divided_up(groups, groups_of_task);
  auto task = [&](size_t index) {
    const int64_t row = static_cast<int64_t>(index) / columns * strip;
    const int64_t first = static_cast<int64_t>(index) % columns * groups_of_task * kPartPanels;
    const int64_t last = std::min(first + groups_of_task * kPartPanels, matrix.panels);
    kernel.build->multiply(activations, matrix, {row, std::min(rows, row + strip), first, last}, out);
  };
  if (strips * columns == 1) return task(0);
  parallel_for(kernel.api, context, static_cast<size_t>(strips * columns), task);
}

QuantizedMatrix widened(const Kernel& kernel, const QuantizedMatrix& stored, WideWeights& wide) {
  if (kernel.wide_block == 0) return stored;
  std::call_once(wide.made, [&] { wide.matrix = WideMatrix(stored, kernel.wide_block); });
  return wide.matrix.matrix();
}

void compute(const Kernel& kernel, WideWeights& wide, OrtKernelContext* context) {
  const auto a = input<const float>(kernel.api, context, kActivations);
  const QuantizedMatrix matrix = widened(kernel, matrix_inputs(kernel.api, context, kernel.matrix), wide);
  require(!a.dims.empty() && a.dims.back() == matrix.rows, "a has shape ", a.dims, ", expected ", matrix.rows,
          " columns");
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < a.dims.size(); ++i) rows *= a.dims[i];
  std::vector<int64_t> dims = a.dims;
  const bool gated = kernel.epilogue == Epilogue::kGate;
  dims.back() = gated ? matrix.columns / 2 : matrix.columns;
  const auto bias = input<const float>(kernel.api, context, kBias);
  if (bias.present) {
    require(!gated, "there is no bias with a gate");
    require_shape("bias", bias.dims, {matrix.columns});
  }
  const ProductOutput out{output<float>(kernel.api, context, dims), dims.back(), bias.data, kernel.epilogue};
  if (rows == 0) return;

  thread_local Room room;
  const int64_t most = std::max<int64_t>(1, kMaxActivationBytes / matrix.padded_rows());
  const int64_t rows_of_part = divided_up(rows, divided_up(rows, most));
  for (int64_t begin = 0; begin < rows; begin += rows_of_part) {
    const int64_t count = std::min(rows_of_part, rows - begin);
    const Activations activations = room.take(matrix, count);
    quantize(kernel, context, matrix, a.data + begin * matrix.rows, count, activations);
    ProductOutput part = out;
    part.data += begin * out.columns;
    multiply(kernel, context, matrix, activations, count, part);
  }
}

Kernel make_kernel(const OrtApi* api, const OrtKernelInfo* info) {
  const int64_t gated = attribute_or<int64_t>(api, info, "gated", 0);
  const int64_t gelu = attribute_or<int64_t>(api, info, "gelu", 0);
  require(gated == 0 || gated == 1, "gated is ", gated, ", must be 0 or 1");
  require(gelu == 0 || gelu == 1, "gelu is ", gelu, ", must be 0 or 1");
  require(gated + gelu <= 1, "there is no gelu with a gate");
  const Epilogue epilogue = gated == 1 ? Epilogue::kGate : gelu == 1 ? Epilogue::kGelu : Epilogue::kNone;
  const QuantizedMatrix matrix = matrix_attributes(api, info, gated == 1);
  const int64_t wide_block = attribute_or<int64_t>(api, info, "wide_block", 0);
  require_wide_block(matrix, wide_block);
  return {api, &choose_kernel_build().quantized, matrix, epilogue, wide_block};
}

class QuantizedMatMul {
 public:
  static constexpr const char* kName = "QuantizedMatMul";
  static constexpr size_t kInputs = kMatrixInputEnd;
  static int input_type(size_t index) { return matrix_input_type(index); }
  static bool is_optional(size_t index) { return is_optional_of_matrix(index); }

  QuantizedMatMul(const OrtApi* api, const OrtKernelInfo* info) : kernel_(make_kernel(api, info)) {}

  void compute(OrtKernelContext* context) const { edge_rag::compute(kernel_, *wide_, context); }
  const OrtApi* api() const { return kernel_.api; }

 private:
  Kernel kernel_;
  std::unique_ptr<WideWeights> wide_ = std::make_unique<WideWeights>();
};

}  // namespace

const OrtCustomOp& quantized_matmul_op() {
  static const OrtCustomOp op = describe_op<QuantizedMatMul>();
  return op;
}

}  // namespace edge_rag
