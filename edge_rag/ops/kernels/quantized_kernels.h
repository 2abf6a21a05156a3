// The arithmetic of products with quantized matrices, once per instruction set; every build computes the same bits. A
// row's result depends on that row and the matrix only.
#pragma once

#include <cstdint>

#include "quantized_matrix.h"

namespace edge_rag {

// Activations as 8-bit integers: for every row and block of the matrix's rows a scale, the sum of what the integers stand
// for (with minima only), and what the product of the integers has to be corrected by for the zero points: with zero
// points for every column the sum of the block's integers, otherwise that sum times minus the one zero point (as the
// build sees it). Blocks are the outermost dimension. There is one row, or room for an even number: a build with
// matrix instructions keeps the integers of two together.
struct Activations {
  int8_t* integers;   // [blocks][rows][stride]
  float* scales;      // [blocks][rows]
  float* sums;        // [blocks][rows]
  int32_t* offsets;   // [blocks][rows]
  int64_t rows;       // 1 or even
  int64_t stride;     // of a row of a block, bytes

  EDGE_RAG_INLINE int64_t at(int64_t block, int64_t row) const { return block * rows + row; }
};

constexpr int64_t kPartPanels = 4;

// The part of a product that one call makes: rows [begin, end), of which begin is even, by panels [first_panel,
// last_panel). The first is a multiple of kPartPanels, and so is the last unless it is the matrix's.
struct ProductPart {
  int64_t begin;
  int64_t end;
  int64_t first_panel;
  int64_t last_panel;
};

// What is made of a sum before it is written: of two sums with a gate, silu(gate) * operand.
enum class Epilogue { kNone, kGate, kGelu };

// Where results go: row r at data + r * columns.
struct ProductOutput {
  float* data;
  int64_t columns;
  const float* bias;  // [columns], added first; or null. Not with a gate.
  Epilogue epilogue;

  EDGE_RAG_INLINE bool gated() const { return epilogue == Epilogue::kGate; }
};

struct QuantizedKernels {
  // Quantizes rows [begin, end) of float [rows, matrix.rows].
  void (*quantize)(const float* in, const QuantizedMatrix& matrix, int64_t begin, int64_t end, const Activations& out);

  void (*multiply)(const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
                   const ProductOutput& out);
};

// Rows whose sums are kept at a time.
constexpr int64_t kStripRows = 96;

}  // namespace edge_rag
