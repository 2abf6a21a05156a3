#include "schedule.h"

#include <algorithm>

namespace edge_rag {
namespace {

// Tokens that one task stores.
constexpr int64_t kStoreTokens = 32;

// With fewer tasks than this, those with a context of several spans are divided along it. Small machines have fewer
// threads, so that all are busy either way.
constexpr size_t kEnoughTasks = 64;

// As many tokens as make a whole number of register tiles, where that is possible.
int64_t tile_tokens(int64_t rows, int64_t group) {
  const int64_t tokens = std::max<int64_t>(1, rows / group);
  return tokens < kRowStep ? tokens : tokens / kRowStep * kRowStep;
}

}  // namespace

Schedule::Schedule(const Step& step, const std::vector<Sequence>& sequences) {
  for (int64_t token = 0; token < step.tokens; token += kStoreTokens) {
    stores.push_back({token, std::min(step.tokens, token + kStoreTokens)});
  }

  const int64_t group = step.group();
  const int64_t most_rows = max_rows(step.layout.head_size);
  const int64_t tokens = tile_tokens(most_rows, group);
  for (const Sequence& sequence : sequences) {
    for (int64_t begin = sequence.begin; begin < sequence.end; begin += tokens) {
      const int64_t end = std::min(sequence.end, begin + tokens);
      const auto [first, last] = std::minmax_element(step.positions + begin, step.positions + end);
      const int64_t first_seen = step.first_seen(*first);
      const int64_t context = *last + 1;
      for (int64_t head = 0; head < step.kv_heads; ++head) {
        for (int64_t row = 0; row < (end - begin) * group; row += most_rows) {
          const RowRange rows{sequence.index, begin, head, row, std::min((end - begin) * group, row + most_rows)};
          tasks.push_back({rows, first_seen, context, true, 0, 0});
        }
      }
    }
  }

  if (tasks.size() < kEnoughTasks) {
    std::vector<AttendTask> divided;
    int64_t floats = 0;
    const int64_t row_floats = kLanes + row_elements(step.layout.head_size);
    const auto floats_of = [&](const AttendTask& task) {
      const int64_t rows = task.rows.end - task.rows.begin;
      return padded_rows(rows) + rows * row_floats;
    };
    for (AttendTask task : tasks) {
      const int64_t first_span = task.begin / kSpanTokens;
      const int64_t end_span = (task.end + kSpanTokens - 1) / kSpanTokens;
      if (end_span - first_span > 1) {
        task.whole = false;
        merges.push_back({task.rows, first_span, static_cast<int64_t>(partials.size())});
        for (task.span = first_span; task.span < end_span; ++task.span) {
          task.partial = static_cast<int64_t>(partials.size());
          partials.emplace_back();
          divided.push_back(task);
          floats += floats_of(task);
        }
      } else {
        divided.push_back(task);
      }
    }
    room_.reset(new float[static_cast<size_t>(floats)]);
    float* at = room_.get();
    for (const AttendTask& task : divided) {
      if (task.whole) continue;
      const int64_t rows = task.rows.end - task.rows.begin;
      float* const sums = at + padded_rows(rows);
      partials[static_cast<size_t>(task.partial)] = {at, sums, sums + rows * kLanes};
      at += floats_of(task);
    }
    tasks = std::move(divided);
  }

  const auto cost = [](const AttendTask& task) {
    const int64_t begin = task.whole ? task.begin : std::max(task.begin, task.span * kSpanTokens);
    const int64_t end = task.whole ? task.end : std::min(task.end, (task.span + 1) * kSpanTokens);
    return (end - begin) * (task.rows.end - task.rows.begin);
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const AttendTask& a, const AttendTask& b) { return cost(a) > cost(b); });
}

}  // namespace edge_rag
