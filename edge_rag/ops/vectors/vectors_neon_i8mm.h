// NEON with the matrix instructions for bytes, which multiply 2 rows of 8 by 2 columns of 8 and sum all four products.
// The columns are two lanes, of which two quads are joined when they are read. What the rows are differs:
//   a product with a matrix takes two rows of activations; their integers lie together, 8 of one and 8 of the other
//   attention takes the two digits of one element, high and low, of 8 elements at a time: one pass makes both sums
#pragma once

#include "vectors_neon_dot.h"

namespace edge_rag {
namespace {

struct NeonI8mmVectors : NeonDotVectors {
  static constexpr int kMatrixRows = 2;
  static constexpr int kPasses = 1;

  // Of each 16 bytes the first 8 are written.
  static EDGE_RAG_INLINE void store_bytes_apart(uint8_t* to, const Ints& x) {
    const uint8x16_t bytes = low_bytes(x);
    vst1_u8(to, vget_low_u8(bytes));
    vst1_u8(to + 16, vget_high_u8(bytes));
  }
  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t, int64_t at, const Ints& x) {
    store_bytes_apart(row + 2 * at, each<Ints>([&](int i) { return vshrq_n_s32(x.part[i], 7); }));
    store_bytes_apart(row + 2 * at + 8, each<Ints>([&](int i) { return vandq_s32(x.part[i], vdupq_n_s32(127)); }));
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  // Four lanes' first quads and their second ones become two lanes' 8 bytes and the other two's.
  static EDGE_RAG_INLINE uint8x16_t first_lanes_of(uint8x16_t first, uint8x16_t second) {
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(first), vreinterpretq_u32_u8(second)));
  }
  static EDGE_RAG_INLINE uint8x16_t last_lanes_of(uint8x16_t first, uint8x16_t second) {
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(first), vreinterpretq_u32_u8(second)));
  }

  // Of 8 lanes, two to a register: of each lane the sum of the high digits and that of the low ones.
  struct Panel {
    uint8x16_t part[4];
  };
  using Factor = int8x16_t;

  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) {
    const int32_t start[4] = {-row_sum, 0, -row_sum, 0};  // the sums of the high digits are multiplied by the bias
    return each<Sum>([&](int) { return vld1q_s32(start); });
  }
  static EDGE_RAG_INLINE void finish(const Sum& sum, int64_t part, Ints& out) {
    for (int64_t i = 0; i < 2; ++i) {
      const int32x4_t high = vuzp1q_s32(sum.part[2 * i], sum.part[2 * i + 1]);
      const int32x4_t low = vuzp2q_s32(sum.part[2 * i], sum.part[2 * i + 1]);
      out.part[2 * part + i] = vaddq_s32(vshlq_n_s32(high, 7), low);
    }
  }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* first, const uint8_t* second) {
    Panel panel;
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t quads[2] = {vld1q_u8(first + 16 * i), vld1q_u8(second + 16 * i)};
      panel.part[2 * i] = first_lanes_of(quads[0], quads[1]);
      panel.part[2 * i + 1] = last_lanes_of(quads[0], quads[1]);
    }
    return panel;
  }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* first, const uint8_t* second) { return load_keys(first, second); }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t, int, int64_t at) {
    return vreinterpretq_s8_u8(vld1q_u8(row + 2 * at));
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, Factor factor) {
    return each<Sum>([&](int i) { return vusmmlaq_s32(sum.part[i], panel.part[i], factor); });
  }
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, Factor factor) {
    return each<Sum>([&](int i) { return vmmlaq_s32(sum.part[i], vreinterpretq_s8_u8(panel.part[i]), factor); });
  }

  // Two quads of weights, those of a lane together.
  static EDGE_RAG_INLINE void store_joined(uint8_t* to, uint8x16_t first, uint8x16_t second) {
    vst1q_u8(to, first_lanes_of(first, second));
    vst1q_u8(to + 16, last_lanes_of(first, second));
  }
  static EDGE_RAG_INLINE void split_nibbles(const uint8_t* from, uint8_t* to) {
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t bytes = vld1q_u8(from + 16 * i);
      store_joined(to + 32 * i, low_nibbles(bytes), high_nibbles(bytes));
    }
  }
  static EDGE_RAG_INLINE void rewrite_bytes(const uint8_t* from, uint8_t* to) {
    const uint8_t* const second = from + kLanes * kQuad;
    for (int i = 0; i < 4; ++i) store_joined(to + 32 * i, vld1q_u8(from + 16 * i), vld1q_u8(second + 16 * i));
  }

  template <int kBits>
  struct Products {
    static constexpr int kRows = 4;
    static constexpr int kColumns = 1;
    static constexpr int32_t kBias = 0;

    // Two lanes to a register, of each the sums of two rows.
    struct Sum {
      int32x4_t part[8];
    };
    struct Weights {
      uint8x16_t part[8];
    };
    using Factor = int8x16_t;

    static EDGE_RAG_INLINE Sum start(int32_t first, int32_t second) {
      const int32_t both[4] = {first, second, first, second};
      const int32x4_t start = vld1q_s32(both);
      return {{start, start, start, start, start, start, start, start}};
    }
    static EDGE_RAG_INLINE Ints finish(const Sum& sum, int row) {
      return each<Ints>([&](int i) {
        const int32x4_t* const lanes = sum.part + 2 * i;
        return row == 0 ? vuzp1q_s32(lanes[0], lanes[1]) : vuzp2q_s32(lanes[0], lanes[1]);
      });
    }
    template <class Quads>
    static EDGE_RAG_INLINE Weights joined(Quads quads) {
      Weights weights;
      for (int i = 0; i < 4; ++i) {
        weights.part[2 * i] = first_lanes_of(quads(i, 0), quads(i, 1));
        weights.part[2 * i + 1] = last_lanes_of(quads(i, 0), quads(i, 1));
      }
      return weights;
    }
    static EDGE_RAG_INLINE Weights load(const uint8_t* from) {
      return joined([&](int i, int64_t quad) { return vld1q_u8(from + quad * kLanes * kQuad + 16 * i); });
    }
    static EDGE_RAG_INLINE Weights load_nibbles(const uint8_t* from) {
      return joined([&](int i, int64_t quad) {
        const uint8x16_t bytes = vld1q_u8(from + 16 * i);
        return quad == 0 ? low_nibbles(bytes) : high_nibbles(bytes);
      });
    }
    static EDGE_RAG_INLINE Weights load_rewritten(const uint8_t* from) {
      Weights weights;
      for (int i = 0; i < 8; ++i) weights.part[i] = vld1q_u8(from + 16 * i);
      return weights;
    }
    static EDGE_RAG_INLINE Factor factor(const int8_t* from) { return vld1q_s8(from); }
    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, Factor factor) {
      Sum result;
      for (int i = 0; i < 8; ++i) result.part[i] = vusmmlaq_s32(sum.part[i], weights.part[i], factor);
      return result;
    }
  };
};

}  // namespace
}  // namespace edge_rag
