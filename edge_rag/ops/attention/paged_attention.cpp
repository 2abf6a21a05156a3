#include "paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "custom_op.h"
#include "kernels.h"
#include "ort_tensor.h"
#include "schedule.h"
#include "step.h"

namespace edge_rag {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kPages, kCosine, kSine, kPositions, kSlots, kCumulative, kTable, kInputCount };

struct Kernel {
  const OrtApi* api;
  const KernelBuild* build;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t page_tokens;
  float scale;
  int64_t window;
  float softcap;
};

// Operands are [T, columns] or [1, T, columns].
std::pair<int64_t, int64_t> rows_and_columns(const char* name, const std::vector<int64_t>& dims) {
  const bool shaped = dims.size() == 2 || (dims.size() == 3 && dims[0] == 1);
  require(shaped, name, " has shape ", dims, ", expected [tokens, columns] or [1, tokens, columns]");
  return {dims[dims.size() - 2], dims.back()};
}

void read_operands(const Kernel& kernel, const OrtKernelContext* context, Step& step, std::vector<int64_t>& output_dims) {
  const auto query = input<const float>(kernel.api, context, kQuery);
  const auto key = input<const float>(kernel.api, context, kKey);
  const auto value = input<const float>(kernel.api, context, kValue);
  require(key.present == value.present, "key and value must be given both or neither");
  const auto [tokens, columns] = rows_and_columns("query", query.dims);
  const int64_t heads = key.present ? kernel.query_heads : kernel.query_heads + 2 * kernel.kv_heads;
  const int64_t size = columns / heads;
  require(columns % heads == 0 && size > 0 && size % kHeadSizeStep == 0 && size <= kMaxHeadSize, "query has ", columns,
          " columns for ", heads, " heads; the head size must be a multiple of ", kHeadSizeStep, ", at most ", kMaxHeadSize);

  step.tokens = tokens;
  step.layout = {size, kernel.page_tokens};
  step.query = {query.data, columns};
  if (key.present) {
    auto dims = query.dims;
    dims.back() = kernel.kv_heads * size;
    require_shape("key", key.dims, dims);
    require_shape("value", value.dims, dims);
    step.key = {key.data, dims.back()};
    step.value = {value.data, dims.back()};
  } else {
    step.key = {query.data + kernel.query_heads * size, columns};
    step.value = {query.data + (kernel.query_heads + kernel.kv_heads) * size, columns};
  }
  output_dims = query.dims;
  output_dims.back() = kernel.query_heads * size;
}

// Returns the number of pages.
int64_t read_pages(const Kernel& kernel, const OrtKernelContext* context, Step& step) {
  const auto pages = input<uint8_t>(kernel.api, context, kPages);
  require(pages.dims.size() == 2, "pages has shape ", pages.dims, ", expected [pages, page bytes]");
  step.pages = pages.data;
  step.page_bytes = step.layout.head_bytes() * step.kv_heads;
  require(pages.dims[1] == step.page_bytes, "a page has ", pages.dims[1], " bytes, expected ", step.page_bytes);
  return pages.dims[0];
}

// Returns the number of positions.
int64_t read_rotary(const Kernel& kernel, const OrtKernelContext* context, Step& step) {
  const auto cosine = input<const float>(kernel.api, context, kCosine);
  const auto sine = input<const float>(kernel.api, context, kSine);
  require(cosine.dims.size() == 2 && cosine.dims[1] * 2 <= step.layout.head_size, "cos has shape ",
          cosine.dims, ", expected [positions, at most ", step.layout.head_size / 2, "]");
  require_shape("sin", sine.dims, cosine.dims);
  step.cosine = cosine.data;
  step.sine = sine.data;
  step.rotary_pairs = cosine.dims[1];
  return cosine.dims[0];
}

void read_tokens(const Kernel& kernel, const OrtKernelContext* context, int64_t pages, int64_t positions, Step& step) {
  const auto position = input<const int32_t>(kernel.api, context, kPositions);
  const auto slot = input<const int32_t>(kernel.api, context, kSlots);
  require_shape("positions", position.dims, {step.tokens});
  require_shape("slot_mapping", slot.dims, {step.tokens});
  const int64_t slots = pages * step.layout.page_tokens;
  for (int64_t t = 0; t < step.tokens; ++t) {
    require(position.data[t] >= 0 && position.data[t] < positions, "position ", position.data[t], " of token ", t,
            " is outside [0, ", positions, ")");
    require(slot.data[t] >= 0 && slot.data[t] < slots, "slot ", slot.data[t], " of token ", t, " is outside [0, ", slots,
            ")");
  }
  std::vector<int32_t> sorted(slot.data, slot.data + step.tokens);
  std::sort(sorted.begin(), sorted.end());
  const auto twin = std::adjacent_find(sorted.begin(), sorted.end());
  require(twin == sorted.end(), "two tokens have the slot ", twin == sorted.end() ? 0 : *twin);
  step.positions = position.data;
  step.slots = slot.data;
}

std::vector<Sequence> read_sequences(const Kernel& kernel, const OrtKernelContext* context, int64_t pages, Step& step) {
  const auto cumulative = input<const int32_t>(kernel.api, context, kCumulative);
  const auto table = input<const int32_t>(kernel.api, context, kTable);
  require(cumulative.dims.size() == 1 && cumulative.dims[0] >= 1, "cumulative_sequence_lengths has shape ",
          cumulative.dims, ", expected [sequences + 1]");
  const int64_t sequences = cumulative.dims[0] - 1;
  require(table.dims.size() == 2 && table.dims[0] == sequences, "block_table has shape ", table.dims,
          ", expected [", sequences, ", pages]");
  require(cumulative.data[0] == 0 && cumulative.data[sequences] == step.tokens,
          "cumulative_sequence_lengths must go from 0 to ", step.tokens);
  step.block_table = table.data;
  step.table_width = table.dims[1];

  std::vector<Sequence> found;
  for (int64_t s = 0; s < sequences; ++s) {
    const int32_t begin = cumulative.data[s];
    const int32_t end = cumulative.data[s + 1];
    require(begin <= end && end <= step.tokens, "cumulative_sequence_lengths falls from ", begin, " to ", end);
    if (begin == end) continue;
    const auto [lowest, highest] = std::minmax_element(step.positions + begin, step.positions + end);
    const int64_t first = step.first_seen(*lowest) / step.layout.page_tokens;
    const int64_t last = *highest / step.layout.page_tokens;
    require(last < step.table_width, "sequence ", s, " needs ", last + 1, " pages, block_table has ", step.table_width);
    for (int64_t i = first; i <= last; ++i) {
      const int32_t page = table.data[s * step.table_width + i];
      require(page >= 0 && page < pages, "page ", page, " of sequence ", s, " is outside [0, ", pages, ")");
    }
    found.push_back({s, begin, end});
  }
  return found;
}

void compute(const Kernel& kernel, OrtKernelContext* context) {
  Step step{};
  step.query_heads = kernel.query_heads;
  step.kv_heads = kernel.kv_heads;
  step.scale = kernel.scale;
  step.window = kernel.window;
  step.softcap = kernel.softcap;
  std::vector<int64_t> output_dims;
  read_operands(kernel, context, step, output_dims);
  const int64_t pages = read_pages(kernel, context, step);
  const int64_t positions = read_rotary(kernel, context, step);
  read_tokens(kernel, context, pages, positions, step);
  const std::vector<Sequence> sequences = read_sequences(kernel, context, pages, step);

  step.output = output<float>(kernel.api, context, output_dims);
  const Schedule schedule(step, sequences);

  // Nothing below can fail: every index has been checked, and the tasks neither allocate nor throw.
  const KernelBuild& build = *kernel.build;
  parallel_for(kernel.api, context, schedule.stores.size(), [&](size_t task) {
    build.store(step, schedule.stores[task].begin, schedule.stores[task].end);
  });
  parallel_for(kernel.api, context, schedule.tasks.size(), [&](size_t index) {
    const AttendTask& task = schedule.tasks[index];
    if (task.whole) {
      build.attend(step, task.rows);
    } else {
      build.attend_span(step, task.rows, task.span, schedule.partials[task.partial]);
    }
  });
  parallel_for(kernel.api, context, schedule.merges.size(), [&](size_t index) {
    const MergeTask& task = schedule.merges[index];
    build.merge_spans(step, task.rows, task.first_span, &schedule.partials[task.first_partial]);
  });
}

Kernel make_kernel(const OrtApi* api, const OrtKernelInfo* info) {
  Kernel kernel{};
  kernel.api = api;
  kernel.build = &choose_kernel_build();
  kernel.query_heads = attribute<int64_t>(api, info, "num_heads");
  kernel.kv_heads = attribute<int64_t>(api, info, "kv_num_heads");
  kernel.page_tokens = attribute<int64_t>(api, info, "page_tokens");
  kernel.scale = attribute<float>(api, info, "scale");
  kernel.softcap = attribute_or<float>(api, info, "softcap", 0.0f);
  require(kernel.softcap >= 0.0f && std::isfinite(kernel.softcap), "softcap must be finite and not negative");
  const int64_t window = attribute_or<int64_t>(api, info, "local_window_size", -1);
  require(window == -1 || window > 0, "local_window_size is ", window, ", must be -1 or positive");
  kernel.window = window > 0 ? window : std::numeric_limits<int64_t>::max();
  require(kernel.kv_heads > 0 && kernel.query_heads > 0 && kernel.query_heads % kernel.kv_heads == 0, "num_heads ",
          kernel.query_heads, " is not a multiple of kv_num_heads ", kernel.kv_heads);
  const int64_t page_tokens = kernel.page_tokens;
  require(page_tokens >= kLanes && page_tokens <= kMaxPageTokens && kBlockTokens % page_tokens == 0, "page_tokens is ",
          page_tokens, ", must be 16, 32 or 64");
  return kernel;
}

class PagedAttention {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr size_t kInputs = Input::kInputCount;
  static int input_type(size_t index) {
    switch (index) {
      case kPages:
        return kOrtInt8;
      case kPositions:
      case kSlots:
      case kCumulative:
      case kTable:
        return kOrtInt32;
      default:
        return kOrtFloat;
    }
  }
  static bool is_optional(size_t index) { return index == kKey || index == kValue; }

  PagedAttention(const OrtApi* api, const OrtKernelInfo* info) : kernel_(make_kernel(api, info)) {}

  void compute(OrtKernelContext* context) const { edge_rag::compute(kernel_, context); }
  const OrtApi* api() const { return kernel_.api; }

 private:
  Kernel kernel_;
};

}  // namespace

const OrtCustomOp& paged_attention_op() {
  static const OrtCustomOp op = describe_op<PagedAttention>();
  return op;
}

}  // namespace edge_rag
