#pragma once

#include "ort_abi.h"

namespace edge_rag {

// The op ai.edge_rag::PagedAttention, version 1.
//
// Inputs (T tokens, S sequences, HQ query heads, HK kv heads, D head size):
//   0 query         float [T, HQ*D] or [1, T, HQ*D]; or, with 1 and 2 absent, packed [.., (HQ + 2*HK)*D]
//   1 key           float [.., HK*D], optional
//   2 value         float [.., HK*D], optional
//   3 pages         int8 [pages, page bytes], written in place; the layout is page_layout.h
//   4 cos, 5 sin    float [positions, rotary pairs], rotary pairs <= D/2
//   6 positions     int32 [T]
//   7 slot_mapping  int32 [T], page * page_tokens + offset, where the token's K and V go; no two tokens share one
//   8 cumulative_sequence_lengths int32 [S+1]: tokens [c[s], c[s+1]) are sequence s
//   9 block_table   int32 [S, width]: the pages of each sequence in order; entries past its last position are not read.
// Output: float, shape of the query, with HQ*D columns.
//   Entries of pages before the first position that some token of the sequence sees are not read either.
// Attributes: num_heads, kv_num_heads, page_tokens (16, 32 or 64), scale (float), and as ONNX Runtime's
// GroupQueryAttention has them (1.31):
//   local_window_size  optional int, -1 (the default) or positive: a token sees itself and the window - 1 before it
//   softcap            optional float, 0 (the default) or positive: scores are softcap * tanh(scale * query.key / softcap)
// K and V of all T tokens are stored before any of them attends. A token's result is the same bits whatever else is in
// the step, however a sequence is divided into steps, and whichever kernel build runs.
const OrtCustomOp& paged_attention_op();

}  // namespace edge_rag
