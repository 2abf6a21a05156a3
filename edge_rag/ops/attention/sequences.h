// Sequences that lie end to end, as ONNX Runtime hands them to an op.
#pragma once

#include <cstdint>
#include <vector>

#include "ort_tensor.h"

namespace edge_rag {

// Tokens [begin, end).
struct TokenSpan {
  int64_t begin;
  int64_t end;
};

// Reads cumulative_sequence_lengths, int32 [S + 1]; throws InvalidInput unless they go from 0 to `tokens` and never fall.
inline std::vector<TokenSpan> sequence_spans(const OrtApi* api, const OrtKernelContext* context, size_t index,
                                             int64_t tokens) {
  const auto cumulative = input<const int32_t>(api, context, index);
  require(cumulative.dims.size() == 1 && cumulative.dims[0] >= 1, "cumulative_sequence_lengths has shape ",
          cumulative.dims, ", expected [sequences + 1]");
  const int64_t sequences = cumulative.dims[0] - 1;
  require(cumulative.data[0] == 0 && cumulative.data[sequences] == tokens,
          "cumulative_sequence_lengths must go from 0 to ", tokens);
  std::vector<TokenSpan> spans;
  spans.reserve(static_cast<size_t>(sequences));
  for (int64_t s = 0; s < sequences; ++s) {
    const int32_t begin = cumulative.data[s];
    const int32_t end = cumulative.data[s + 1];
    require(begin <= end && end <= tokens, "cumulative_sequence_lengths falls from ", begin, " to ", end);
    spans.push_back({begin, end});
  }
  return spans;
}

}  // namespace edge_rag
