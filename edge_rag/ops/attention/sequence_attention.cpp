#include "sequence_attention.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_op.h"
#include "kernels.h"
#include "ort_tensor.h"
#include "sequences.h"

namespace edge_rag {
namespace {

constexpr int64_t kCacheLine = 64;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxWindow = int64_t{1} << 30;

// Room for all tasks of a call, kept from call to call of a thread.
class Room {
 public:
  // Returns at least so many floats, aligned to cache lines.
  float* take(int64_t floats) {
    const size_t size = static_cast<size_t>(floats) + kCacheLine / sizeof(float);
    if (floats_.size() < size) floats_.resize(size);
    const auto address = reinterpret_cast<uintptr_t>(floats_.data());
    return floats_.data() + (kCacheLine - address % kCacheLine) % kCacheLine / sizeof(float);
  }

 private:
  std::vector<float> floats_;
};

class SequenceAttention {
 public:
  static constexpr const char* kName = "SequenceAttention";
  enum Input : size_t { kQkv, kCumulative, kInputs };

  static int input_type(size_t index) { return index == kQkv ? kOrtFloat : kOrtInt32; }
  static bool is_optional(size_t) { return false; }

  SequenceAttention(const OrtApi* api, const OrtKernelInfo* info)
      : api_(api),
        build_(&choose_kernel_build().encoder),
        heads_(attribute<int64_t>(api, info, "num_heads")),
        scale_(attribute<float>(api, info, "scale")),
        window_(attribute_or<int64_t>(api, info, "window", 0)) {
    require(heads_ > 0 && heads_ <= kMaxHeads, "num_heads is ", heads_, ", must be 1 to ", kMaxHeads);
    require(window_ >= 0 && window_ <= kMaxWindow, "window is ", window_, ", must be 0 to ", kMaxWindow);
  }

  const OrtApi* api() const { return api_; }

  void compute(OrtKernelContext* context) const {
    const auto qkv = input<const float>(api_, context, kQkv);
    require(qkv.dims.size() == 2 && qkv.dims[1] > 0 && qkv.dims[1] % (3 * heads_ * kLanes) == 0, "qkv has shape ",
            qkv.dims, ", expected [tokens, 3 * ", heads_, " heads * a multiple of ", kLanes, "]");
    const int64_t tokens = qkv.dims[0];
    const std::vector<TokenSpan> sequences = sequence_spans(api_, context, kCumulative, tokens);
    PackedHeads heads{qkv.data, heads_, qkv.dims[1] / (3 * heads_), scale_, window_, nullptr};
    heads.output = output<float>(api_, context, {tokens, heads.width()});

    std::vector<SequenceHead> tasks;
    tasks.reserve(sequences.size() * static_cast<size_t>(heads_));
    int64_t floats = 0;
    for (const TokenSpan& span : sequences) {
      if (span.begin == span.end) continue;
      for (int64_t head = 0; head < heads_; ++head) tasks.push_back({span.begin, span.end, head, nullptr});
    }
    // The longest first, so that threads end together.
    std::stable_sort(tasks.begin(), tasks.end(), [](const SequenceHead& a, const SequenceHead& b) {
      return a.end - a.begin > b.end - b.begin;
    });
    const auto floats_of = [&](const SequenceHead& task) { return room_floats(task.end - task.begin, heads.head_size); };
    for (const SequenceHead& task : tasks) floats += floats_of(task);
    thread_local Room room;
    float* at = room.take(floats);
    for (SequenceHead& task : tasks) {
      task.room = at;
      at += floats_of(task);
    }
    // Nothing below can fail: the tasks neither allocate nor throw.
    parallel_for(api_, context, tasks.size(), [&](size_t index) { build_->attend_sequence(heads, tasks[index]); });
  }

 private:
  const OrtApi* api_;
  const EncoderKernels* build_;
  int64_t heads_;
  float scale_;
  int64_t window_;
};

}  // namespace

const OrtCustomOp& sequence_attention_op() {
  static const OrtCustomOp op = describe_op<SequenceAttention>();
  return op;
}

}  // namespace edge_rag
