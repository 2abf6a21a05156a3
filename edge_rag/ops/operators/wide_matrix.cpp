#include "wide_matrix.h"

#include <algorithm>
#include <cmath>

#include "half.h"
#include "ort_tensor.h"

namespace edge_rag {
namespace {

constexpr int kNibbles = 16;
constexpr int32_t kMiddle = 8;
constexpr int32_t kWideMiddle = 128;
constexpr float kWideLimit = 127.0f;

float scale_at(const QuantizedMatrix& stored, int64_t at) {
  return stored.stored == Stored::kHalf ? half_to_float(static_cast<const uint16_t*>(stored.scales)[at])
                                        : static_cast<const float*>(stored.scales)[at];
}

}  // namespace

void require_wide_block(const QuantizedMatrix& matrix, int64_t wide_block) {
  if (wide_block == 0) return;
  require(matrix.bits == 4, "wide_block is for weights of 4 bits");
  require(wide_block > 0 && wide_block % matrix.block_rows == 0 && wide_block <= kMaxBlockRows, "wide_block is ",
          wide_block, ", must be a multiple of ", matrix.block_rows, " and at most ", kMaxBlockRows);
}

WideMatrix::WideMatrix(const QuantizedMatrix& stored, int64_t block_rows) : form_(stored) {
  require(stored.zero() == Zero::kMiddle && stored.stored != Stored::kByte,
          "with wide_block there are no zero_points, minima and factors");
  form_.bits = 8;
  form_.block_rows = std::min(block_rows, form_.padded_rows());
  form_.blocks = (form_.rows + form_.block_rows - 1) / form_.block_rows;
  form_.group_blocks = form_.blocks;
  form_.stored = Stored::kFloat;
  weights_.resize(static_cast<size_t>(form_.panels * form_.panel_bytes()));
  scales_.resize(static_cast<size_t>(form_.panels * form_.blocks * kLanes));
  for (int64_t panel = 0; panel < form_.panels; ++panel) round_panel(stored, panel);
}

void WideMatrix::round_panel(const QuantizedMatrix& stored, int64_t panel) {
  const uint8_t* const from = stored.weights + panel * stored.panel_bytes();
  uint8_t* const to = weights_.data() + panel * form_.panel_bytes();
  // The last block of either may be cut off by the matrix's end.
  const int64_t blocks_of_wide = (form_.block_rows + stored.block_rows - 1) / stored.block_rows;
  for (int64_t wide = 0; wide < form_.blocks; ++wide) {
    const int64_t first = wide * blocks_of_wide;
    const int64_t last = std::min(first + blocks_of_wide, stored.blocks);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      float largest = 0.0f;
      for (int64_t block = first; block < last; ++block) {
        largest = std::max(largest, std::fabs(scale_at(stored, stored.at_scale(panel, block) + lane)));
      }
      // The largest magnitude that the nibbles of a block can stand for.
      const float scale = largest * kMiddle / kWideLimit;
      const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
      scales_[static_cast<size_t>(form_.at_scale(panel, wide) + lane)] = scale;
      for (int64_t block = first; block < last; ++block) {
        const float step = scale_at(stored, stored.at_scale(panel, block) + lane);
        uint8_t bytes[kNibbles];
        for (int32_t nibble = 0; nibble < kNibbles; ++nibble) {
          const float value = static_cast<float>(nibble - kMiddle) * step * inverse;
          bytes[nibble] = static_cast<uint8_t>(kWideMiddle + std::lrintf(value));
        }
        const int64_t end = std::min(form_.padded_rows(), (block + 1) * stored.block_rows);
        // A line of nibbles holds 8 rows, one of bytes 4.
        for (int64_t row = block * stored.block_rows; row < end; row += kRowPadding) {
          const uint8_t* const nibbles = from + row / kRowPadding * kLineBytes + lane * kQuad;
          uint8_t* const out = to + row / kQuad * kLineBytes + lane * kQuad;
          for (int64_t i = 0; i < kQuad; ++i) {
            out[i] = bytes[nibbles[i] & 15];
            out[kLineBytes + i] = bytes[nibbles[i] >> 4];
          }
        }
      }
    }
  }
}

QuantizedMatrix WideMatrix::matrix() const {
  QuantizedMatrix matrix = form_;
  matrix.weights = weights_.data();
  matrix.scales = scales_.data();
  return matrix;
}

}  // namespace edge_rag
