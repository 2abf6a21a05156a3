// The arithmetic of products with quantized matrices, once per instruction set; every build computes the same bits. A
// row's result depends on that row and the matrix only.
#pragma once

#include <cstdint>

#include "quantized_matrix.h"

namespace edge_rag {

// Rows that are worked on together come in multiples of this.
constexpr int64_t kActivationRows = 8;

// Activations as 8-bit integers: for every row and block of the matrix's rows a scale, and what the product of the
// integers has to be corrected by for the zero points: with zero points for every column the sum of the block's
// integers, without that sum times minus the one zero point (as the build sees it). Blocks are the outermost dimension.
struct Activations {
  int8_t* integers;   // [blocks][rows][stride]
  float* scales;      // [blocks][rows]
  int32_t* offsets;   // [blocks][rows]
  int64_t rows;       // a multiple of kActivationRows
  int64_t stride;     // of a row of a block, bytes

  EDGE_RAG_INLINE int64_t at(int64_t block, int64_t row) const { return block * rows + row; }
};

// The part of a product that one call makes: rows [begin, end) by panels [first_panel, last_panel), both even.
struct ProductPart {
  int64_t begin;
  int64_t end;
  int64_t first_panel;
  int64_t last_panel;
};

// Where results go: row r at data + r * columns. With a gate, column c is silu(gate) * operand.
struct ProductOutput {
  float* data;
  int64_t columns;
  bool gated;
};

struct QuantizedKernels {
  // Quantizes rows [begin, end) of float [rows, matrix.rows].
  void (*quantize)(const float* in, const QuantizedMatrix& matrix, int64_t begin, int64_t end, const Activations& out);

  // Multiplies. Rows past the last of the activations' own may be read, not written.
  void (*multiply)(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                   const ProductOutput& out);
};

// Rows whose sums are kept at a time.
constexpr int64_t kStripRows = 128;

}  // namespace edge_rag
