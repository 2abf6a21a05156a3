#include "sequence_sum.h"

#include <algorithm>
#include <cstdint>

#include "custom_op.h"
#include "ort_tensor.h"
#include "sequences.h"

namespace edge_rag {
namespace {

class SequenceSum {
 public:
  static constexpr const char* kName = "SequenceSum";
  enum Input : size_t { kData, kCumulative, kInputs };

  static int input_type(size_t index) { return index == kData ? kOrtFloat : kOrtInt32; }
  static bool is_optional(size_t) { return false; }

  SequenceSum(const OrtApi* api, const OrtKernelInfo*) : api_(api) {}

  const OrtApi* api() const { return api_; }

  void compute(OrtKernelContext* context) const {
    const auto data = input<const float>(api_, context, kData);
    require(data.dims.size() == 2, "x has shape ", data.dims, ", expected [tokens, columns]");
    const int64_t columns = data.dims[1];
    const auto spans = sequence_spans(api_, context, kCumulative, data.dims[0]);
    float* to = output<float>(api_, context, {static_cast<int64_t>(spans.size()), columns});
    for (const TokenSpan& span : spans) {
      std::fill(to, to + columns, 0.0f);
      for (int64_t row = span.begin; row < span.end; ++row) {
        const float* from = data.data + row * columns;
        for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
      }
      to += columns;
    }
  }

 private:
  const OrtApi* api_;
};

}  // namespace

const OrtCustomOp& sequence_sum_op() {
  static const OrtCustomOp op = describe_op<SequenceSum>();
  return op;
}

}  // namespace edge_rag
