// A matrix of unsigned 4- or 8-bit integers [rows, columns] with a scale and a zero point for every column of a block of
// rows: element = (integer - zero point) * scale. Laid out so that a product with activations reads it once, in order,
// and needs nothing but loads:
//   a panel is 16 columns; panels follow each other; columns past the last are zeros
//   in a panel, 4 consecutive rows are a quad: 8 bits: 64 bytes, byte [lane * 4 + i] is row 4q + i of a column
//   4 bits: two quads share 64 bytes, the first in the low nibbles, the second in the high ones
//   rows are filled up to a multiple of 8; scales and zero points are [panels][blocks][16]
// With a gate (SwiGLU), even panels are columns of the gate and the panel after each is the same columns of its operand.
#pragma once

#include <cstdint>

#include "page_layout.h"

namespace edge_rag {

constexpr int64_t kRowPadding = 8;
constexpr int64_t kLineBytes = kLanes * kQuad;

// A block's products are summed in 32 bits: 255 * 127 * this must fit.
constexpr int64_t kMaxBlockRows = 65536;

struct QuantizedMatrix {
  int64_t rows;
  int64_t columns;
  int64_t bits;
  int64_t block_rows;  // a multiple of 8, at most padded_rows()
  int64_t blocks;
  int64_t panels;
  const uint8_t* weights;
  const float* scales;
  const uint8_t* zero_points;  // null: the middle of the integers' range

  EDGE_RAG_INLINE int64_t padded_rows() const { return (rows + kRowPadding - 1) / kRowPadding * kRowPadding; }
  EDGE_RAG_INLINE int32_t middle() const { return bits == 4 ? 8 : 128; }

  // Lines that hold so many rows of a panel, a multiple of 8.
  EDGE_RAG_INLINE int64_t lines(int64_t of_rows) const { return bits == 4 ? of_rows / 8 : of_rows / 4; }
  EDGE_RAG_INLINE int64_t panel_bytes() const { return lines(padded_rows()) * kLineBytes; }
  EDGE_RAG_INLINE int64_t block_bytes() const { return lines(block_rows) * kLineBytes; }
  EDGE_RAG_INLINE int64_t at_scale(int64_t panel, int64_t block) const { return (panel * blocks + block) * kLanes; }
};

}  // namespace edge_rag
