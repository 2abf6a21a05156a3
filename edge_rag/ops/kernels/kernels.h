// The op's arithmetic, once per instruction set. Every build computes the same bits: products are summed as integers,
// and the float operations of a row are the same, in the same order, everywhere. What a row comes to depends on its own
// query and context only, never on the other rows, tiles or spans of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "encoder_kernels.h"
#include "quantized_kernels.h"
#include "step.h"

namespace edge_rag {

// Tokens whose scores are exponentiated together; a block begins at a multiple of this.
constexpr int64_t kBlockTokens = 128;

// Tokens whose blocks are summed before they are added to what precedes; a span begins at a multiple of this. Spans are
// what a long context is divided into for several threads.
constexpr int64_t kSpanTokens = 512;

// Register tiles have at most this many rows, and a power of two.
constexpr int64_t kRowStep = 8;
EDGE_RAG_INLINE int64_t padded_rows(int64_t rows) { return (rows + kRowStep - 1) / kRowStep * kRowStep; }

// A softmax over part of a context, not yet divided by its sum: sum and output are in units of 2^maximum.
// A row that sees no token of the part has the maximum minus infinity.
struct Partial {
  float* maximum;  // [padded_rows(rows)]
  float* sum;      // [rows, kLanes], the lanes' sums
  float* output;   // [rows, row_elements(head_size)]
};

// Rows are the query heads of one kv head, for consecutive tokens of one sequence: row = token * group + head.
struct RowRange {
  int64_t sequence;
  int64_t first_token;  // index in the step
  int64_t kv_head;
  int64_t begin;  // row
  int64_t end;
};

// Tokens of one layer that are copied to other slots.
struct Move {
  PageLayout layout;
  int64_t kv_heads;
  uint8_t* pages;  // [pages, page_bytes]
  int64_t page_bytes;
  const float* cosine;  // [rotary_pairs] of the angles that keys are turned by; null to leave them as they are
  const float* sine;
  int64_t rotary_pairs;
  int64_t tokens;
  const int64_t* sources;  // [tokens] page * page_tokens + offset
  const int64_t* targets;  // [tokens] none twice, and none a source
};

struct KernelBuild {
  const char* name;

  // Writes the keys, rotated, and the values of tokens [begin, end), both quantized, to the tokens' slots.
  void (*store)(const Step& step, int64_t begin, int64_t end);

  // Attends rows over their whole context and writes their output; at most max_rows(head_size).
  void (*attend)(const Step& step, const RowRange& rows);

  // Attends rows over one span of their context.
  void (*attend_span)(const Step& step, const RowRange& rows, int64_t span, const Partial& out);

  // Merges what attend_span made of the rows' first span to their last and writes the rows' output, as attend would
  // have.
  void (*merge_spans)(const Step& step, const RowRange& rows, int64_t first_span, const Partial* spans);

  void (*move)(const Move& move);

  QuantizedKernels quantized;
  EncoderKernels encoder;
};

// Elements of a row of queries or outputs while it is worked on.
EDGE_RAG_INLINE int64_t row_elements(int64_t head_size) { return head_size <= 64 ? 64 : head_size <= 128 ? 128 : 256; }

// Rows that are worked on together: as many as stay in the first-level cache with a block of keys and values.
constexpr int64_t kTileElements = 4096;
EDGE_RAG_INLINE int64_t max_rows(int64_t head_size) { return kTileElements / row_elements(head_size); }

// The builds this machine can run, the slowest first; the first is the scalar one.
const std::vector<const KernelBuild*>& kernel_builds();

// The fastest of them, or the one that the environment variable EDGE_RAG_OPS_BUILD names. The variable is for tests.
// Throws InvalidInput if it names none that runs here.
const KernelBuild& choose_kernel_build();

}  // namespace edge_rag
