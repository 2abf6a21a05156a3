#include "skip_norm.h"

#include <algorithm>
#include <cstdint>

#include "custom_op.h"
#include "kernels.h"
#include "ort_tensor.h"

namespace edge_rag {
namespace {

// Elements below which several threads cost more than they save.
constexpr int64_t kTaskElements = 1 << 14;

class SkipNorm {
 public:
  static constexpr const char* kName = "SkipLayerNormalization";
  enum Input : size_t { kData, kScale, kBias, kSkip, kInputs };

  static int input_type(size_t) { return kOrtFloat; }
  static bool is_optional(size_t index) { return index == kSkip; }

  SkipNorm(const OrtApi* api, const OrtKernelInfo* info)
      : api_(api), build_(&choose_kernel_build().encoder), epsilon_(attribute<float>(api, info, "epsilon")) {
    require(epsilon_ > 0.0f, "epsilon must be more than 0");
  }

  const OrtApi* api() const { return api_; }

  void compute(OrtKernelContext* context) const {
    const auto data = input<const float>(api_, context, kData);
    const auto scale = input<const float>(api_, context, kScale);
    const auto bias = input<const float>(api_, context, kBias);
    const auto skip = input<const float>(api_, context, kSkip);
    require(data.dims.size() == 2 && data.dims[1] > 0 && data.dims[1] % kLanes == 0, "x has shape ", data.dims,
            ", expected [tokens, a multiple of ", kLanes, "]");
    const int64_t rows = data.dims[0];
    const int64_t columns = data.dims[1];
    require_shape("scale", scale.dims, {columns});
    require_shape("bias", bias.dims, {columns});
    if (skip.present) require_shape("skip", skip.dims, data.dims);
    float* const to = output<float>(api_, context, data.dims);
    const NormRows norm{data.data, skip.data, scale.data, bias.data, columns, epsilon_, to};
    const int64_t rows_of_task = std::max<int64_t>(1, kTaskElements / columns);
    if (rows <= rows_of_task) return build_->normalize(norm, 0, rows);
    const int64_t tasks = (rows + rows_of_task - 1) / rows_of_task;
    parallel_for(api_, context, static_cast<size_t>(tasks), [&](size_t task) {
      const int64_t begin = static_cast<int64_t>(task) * rows_of_task;
      build_->normalize(norm, begin, std::min(rows, begin + rows_of_task));
    });
  }

 private:
  const OrtApi* api_;
  const EncoderKernels* build_;
  float epsilon_;
};

}  // namespace

const OrtCustomOp& skip_norm_op() {
  static const OrtCustomOp op = describe_op<SkipNorm>();
  return op;
}

}  // namespace edge_rag
