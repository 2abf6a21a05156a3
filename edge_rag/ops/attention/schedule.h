// How the work of a step is divided into tasks. Results do not depend on it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"

namespace edge_rag {

// Tokens [begin, end) of a step belong to the sequence.
struct Sequence {
  int64_t index;  // row of the block table
  int64_t begin;
  int64_t end;
};

struct TokenRange {
  int64_t begin;
  int64_t end;
};

struct AttendTask {
  RowRange rows;
  int64_t begin;  // positions that some row sees
  int64_t end;
  bool whole;     // all of them; otherwise those of one span, into a partial result
  int64_t span;
  int64_t partial;
};

struct MergeTask {
  RowRange rows;
  int64_t first_span;
  int64_t first_partial;  // the first span's; those of the next follow
};

struct Schedule {
  Schedule(const Step& step, const std::vector<Sequence>& sequences);

  std::vector<TokenRange> stores;
  std::vector<AttendTask> tasks;  // the longest first, so that threads end together
  std::vector<MergeTask> merges;  // to be run after all tasks
  std::vector<Partial> partials;

 private:
  std::unique_ptr<float[]> room_;  // of the partial results
};

}  // namespace edge_rag
