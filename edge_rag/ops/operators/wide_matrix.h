// Weights of 4 bits rounded to 8 bits with longer blocks. A product then scales its sums less often: with 512 rows and
// blocks of 128 for 32 it takes four fifths of the time. The rounding is the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "quantized_matrix.h"

namespace edge_rag {

// Throws InvalidInput unless a matrix of these attributes may have this wide block: 0, for none, or a multiple of the
// block_rows of 4 bits.
void require_wide_block(const QuantizedMatrix& matrix, int64_t wide_block);

class WideMatrix {
 public:
  WideMatrix() = default;
  // Throws InvalidInput for weights with zero points, minima or factors.
  WideMatrix(const QuantizedMatrix& stored, int64_t block_rows);

  // Refers to this object's memory.
  QuantizedMatrix matrix() const;

 private:
  void round_panel(const QuantizedMatrix& stored, int64_t panel);

  QuantizedMatrix form_{};
  std::vector<uint8_t> weights_;
  std::vector<float> scales_;
};

}  // namespace edge_rag
