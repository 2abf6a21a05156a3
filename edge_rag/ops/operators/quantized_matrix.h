// A matrix of unsigned 4- or 8-bit integers [rows, columns] with a scale for every column of a block of rows, and either a
// zero point: element = (integer - zero point) * scale; or a minimum: element = integer * scale + minimum. Laid out so
// that a product with activations reads it once, in order, and needs nothing but loads:
//   a panel is 16 columns; panels follow each other; columns past the last are zeros
//   in a panel, 4 consecutive rows are a quad: 8 bits: 64 bytes, byte [lane * 4 + i] is row 4q + i of a column
//   4 bits: two quads share 64 bytes, the first in the low nibbles, the second in the high ones
//   rows are filled up to a multiple of 8; scales, zero points and minima are [panels][blocks][16]
// Scales and minima are floats, halves, or bytes: then a scale is its byte times a factor, one for a column of as many
// consecutive blocks as there are in a group, and so is a minimum: factors are [panels][groups][16].
// With a gate (SwiGLU), even panels are columns of the gate and the panel after each is the same columns of its operand.
#pragma once

#include <cstdint>

#include "page_layout.h"

namespace edge_rag {

constexpr int64_t kRowPadding = 8;
constexpr int64_t kLineBytes = kLanes * kQuad;

// A block's products are summed in 32 bits: 255 * 127 * this must fit.
constexpr int64_t kMaxBlockRows = 65536;

// How scales and minima are stored: float32, float16, or bytes that a factor belongs to.
enum class Stored : uint8_t { kFloat, kHalf, kByte };

// What the zero of a matrix is: the middle of the integers' range, a zero point each, or what minima make it.
enum class Zero : uint8_t { kMiddle, kPoints, kMinima };

EDGE_RAG_INLINE int64_t bytes_of(Stored stored) { return stored == Stored::kFloat ? 4 : stored == Stored::kHalf ? 2 : 1; }

struct QuantizedMatrix {
  int64_t rows;
  int64_t columns;
  int64_t bits;
  int64_t block_rows;  // a multiple of 8, at most padded_rows()
  int64_t blocks;
  int64_t panels;
  const uint8_t* weights;
  Stored stored;
  const void* scales;
  const uint8_t* zero_points;      // null, or scales are floats and there are no minima
  const void* minima;              // null, or stored as the scales are
  const float* scale_factors;      // of bytes only
  const float* minimum_factors;    // of bytes with minima only
  int64_t group_blocks;            // that share factors; divides blocks

  EDGE_RAG_INLINE int64_t padded_rows() const { return (rows + kRowPadding - 1) / kRowPadding * kRowPadding; }
  EDGE_RAG_INLINE int32_t middle() const { return bits == 4 ? 8 : 128; }
  EDGE_RAG_INLINE Zero zero() const {
    return zero_points != nullptr ? Zero::kPoints : minima != nullptr ? Zero::kMinima : Zero::kMiddle;
  }

  // Lines that hold so many rows of a panel, a multiple of 8.
  EDGE_RAG_INLINE int64_t lines(int64_t of_rows) const { return bits == 4 ? of_rows / 8 : of_rows / 4; }
  EDGE_RAG_INLINE int64_t panel_bytes() const { return lines(padded_rows()) * kLineBytes; }
  EDGE_RAG_INLINE int64_t block_bytes() const { return lines(block_rows) * kLineBytes; }
  EDGE_RAG_INLINE int64_t at_scale(int64_t panel, int64_t block) const { return (panel * blocks + block) * kLanes; }
  EDGE_RAG_INLINE int64_t at_factor(int64_t panel, int64_t block) const {
    return (panel * (blocks / group_blocks) + block / group_blocks) * kLanes;
  }
};

}  // namespace edge_rag
