// Vectors of NEON with the dot-product instruction, which sums 4 products of signed bytes: 16 lanes are four registers.
// A row is kept as two digits of an element: element = 128 * high + low, high in [-127, 127], low in [0, 127]; first
// all high, then all low.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "page_layout.h"

namespace edge_rag {
namespace {

struct NeonDotVectors {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 1;
  static constexpr int kMatrixRows = 1;
  static constexpr int kStepQuads = 2;
  static constexpr bool kRewritesBytes = true;
  static constexpr int kPasses = 2;
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatColumns = 1;

  struct Floats {
    float32x4_t part[4];
  };
  struct Ints {
    int32x4_t part[4];
  };

  template <class Result, class Operation>
  static EDGE_RAG_INLINE Result each(Operation operation) {
    return {{operation(0), operation(1), operation(2), operation(3)}};
  }

  static EDGE_RAG_INLINE Floats set(float x) {
    return each<Floats>([&](int) { return vdupq_n_f32(x); });
  }
  static EDGE_RAG_INLINE Floats load(const float* from) {
    return each<Floats>([&](int i) { return vld1q_f32(from + 4 * i); });
  }
  static EDGE_RAG_INLINE void store(float* to, const Floats& x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, x.part[i]);
  }
  static EDGE_RAG_INLINE Floats add(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats subtract(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats multiply(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats divide(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats fused(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats larger(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return vmaxq_f32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Floats by_sign(const Floats& x, const Floats& negative, const Floats& otherwise) {
    return each<Floats>([&](int i) {
      return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x.part[i])), negative.part[i], otherwise.part[i]);
    });
  }
  static EDGE_RAG_INLINE Floats first_lanes(int64_t count, const Floats& x, const Floats& otherwise) {
    const int32_t order[4] = {0, 1, 2, 3};
    const int32x4_t lanes = vld1q_s32(order);
    const auto bound = static_cast<int32_t>(count > kLanes ? kLanes : count < 0 ? 0 : count);
    return each<Floats>([&](int i) {
      return vbslq_f32(vcltq_s32(lanes, vdupq_n_s32(bound - 4 * i)), x.part[i], otherwise.part[i]);
    });
  }
  static EDGE_RAG_INLINE float largest(const Floats& x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.part[0], x.part[2]), vmaxq_f32(x.part[1], x.part[3])));
  }
  static EDGE_RAG_INLINE Floats larger_magnitude(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) {
      const int32x4_t left = vreinterpretq_s32_f32(vabsq_f32(a.part[i]));
      return vreinterpretq_f32_s32(vmaxq_s32(left, vreinterpretq_s32_f32(vabsq_f32(b.part[i]))));
    });
  }
  static EDGE_RAG_INLINE float largest_magnitude(const Floats& x) {
    const auto bits = [&](int i) { return vreinterpretq_s32_f32(x.part[i]); };
    const int32_t most = vmaxvq_s32(vmaxq_s32(vmaxq_s32(bits(0), bits(1)), vmaxq_s32(bits(2), bits(3))));
    float result;
    std::memcpy(&result, &most, sizeof(result));
    return result;
  }
  static EDGE_RAG_INLINE float total(const Floats& x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.part[0], x.part[2]), vaddq_f32(x.part[1], x.part[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }

  static EDGE_RAG_INLINE Ints round(const Floats& x) {
    return each<Ints>([&](int i) { return vcvtnq_s32_f32(x.part[i]); });
  }
  static EDGE_RAG_INLINE Floats to_float(const Ints& x) {
    return each<Floats>([&](int i) { return vcvtq_f32_s32(x.part[i]); });
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, const Ints& b) {
    return each<Ints>([&](int i) { return vaddq_s32(a.part[i], b.part[i]); });
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, int32_t b) {
    return each<Ints>([&](int i) { return vaddq_s32(a.part[i], vdupq_n_s32(b)); });
  }
  static EDGE_RAG_INLINE Ints multiply(const Ints& a, int32_t b) {
    return each<Ints>([&](int i) { return vmulq_n_s32(a.part[i], b); });
  }
  static EDGE_RAG_INLINE Ints load_bytes(const uint8_t* from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t first = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t second = vmovl_u8(vget_high_u8(bytes));
    return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(first))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(first))),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(second))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(second)))}};
  }
  static EDGE_RAG_INLINE Floats load_halves(const uint8_t* from) {
    return each<Floats>([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 8 * i))); });
  }
  static EDGE_RAG_INLINE int32_t total(const Ints& x) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.part[0], x.part[1]), vaddq_s32(x.part[2], x.part[3])));
  }
  static EDGE_RAG_INLINE Floats scale_by_power(const Floats& x, const Floats& shifted) {
    return each<Floats>([&](int i) {
      const int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(shifted.part[i]), 23);
      return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.part[i]), power));
    });
  }

  static EDGE_RAG_INLINE uint8x16_t low_bytes(const Ints& x) {
    const int16x8_t first = vcombine_s16(vmovn_s32(x.part[0]), vmovn_s32(x.part[1]));
    const int16x8_t second = vcombine_s16(vmovn_s32(x.part[2]), vmovn_s32(x.part[3]));
    return vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(first), vmovn_s16(second)));
  }
  static EDGE_RAG_INLINE void store_bytes(uint8_t* to, const Ints& x) { vst1q_u8(to, low_bytes(x)); }
  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t elements, int64_t at, const Ints& x) {
    store_bytes(row + at, each<Ints>([&](int i) { return vshrq_n_s32(x.part[i], 7); }));
    store_bytes(row + elements + at, each<Ints>([&](int i) { return vandq_s32(x.part[i], vdupq_n_s32(127)); }));
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  // Two quads, one after the other. A factor's elements are picked by the instruction: a quad of a row that is loaded to
  // all lanes would cost an instruction for every four that multiply.
  using Sum = Ints;
  struct Panel {
    int8x16_t part[8];
  };
  using Factor = int8x8_t;

  static EDGE_RAG_INLINE Sum zero() {
    return each<Sum>([](int) { return vdupq_n_s32(0); });
  }
  static EDGE_RAG_INLINE Sum start_keys(int32_t) { return zero(); }  // the bias is taken off when keys are loaded
  static EDGE_RAG_INLINE Sum shift(const Sum& sum) {
    return each<Sum>([&](int i) { return vshlq_n_s32(sum.part[i], 7); });
  }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE int8x16_t without_bias(uint8x16_t x) {
    return vreinterpretq_s8_u8(veorq_u8(x, vdupq_n_u8(kKeyBias)));
  }
  template <class Signed>
  static EDGE_RAG_INLINE Panel load_quads(const uint8_t* first, const uint8_t* second, Signed to_signed) {
    Panel panel;
    for (int i = 0; i < 4; ++i) {
      panel.part[i] = to_signed(vld1q_u8(first + 16 * i));
      panel.part[4 + i] = to_signed(vld1q_u8(second + 16 * i));
    }
    return panel;
  }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* first, const uint8_t* second) {
    return load_quads(first, second, [](uint8x16_t x) { return without_bias(x); });
  }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* first, const uint8_t* second) {
    return load_quads(first, second, [](uint8x16_t x) { return vreinterpretq_s8_u8(x); });
  }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t elements, int pass, int64_t at) {
    return vreinterpret_s8_u8(vld1_u8(row + pass * elements + at));
  }
  // Written out, because of the intrinsic GCC 12 copies sums in every turn of some loops.
  template <int kWhich>
  static EDGE_RAG_INLINE int32x4_t dot_product(int32x4_t sum, int8x16_t bytes, Factor factor) {
    asm("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(bytes), "w"(factor), "i"(kWhich));
    return sum;
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, Factor factor) {
    const Sum first = each<Sum>([&](int i) { return dot_product<0>(sum.part[i], panel.part[i], factor); });
    return each<Sum>([&](int i) { return dot_product<1>(first.part[i], panel.part[4 + i], factor); });
  }
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, Factor factor) {
    return add_key_products(sum, panel, factor);
  }

  static EDGE_RAG_INLINE uint8x16_t low_nibbles(uint8x16_t x) { return vandq_u8(x, vdupq_n_u8(15)); }
  static EDGE_RAG_INLINE uint8x16_t high_nibbles(uint8x16_t x) { return vshrq_n_u8(x, 4); }
  static EDGE_RAG_INLINE void split_nibbles(const uint8_t* from, uint8_t* to) {
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t bytes = vld1q_u8(from + 16 * i);
      vst1q_u8(to + 16 * i, low_nibbles(bytes));
      vst1q_u8(to + kLanes * kQuad + 16 * i, high_nibbles(bytes));
    }
  }

  // Two lines of 8-bit weights.
  static EDGE_RAG_INLINE void rewrite_bytes(const uint8_t* from, uint8_t* to) {
    for (int i = 0; i < 8; ++i) vst1q_s8(reinterpret_cast<int8_t*>(to) + 16 * i, without_bias(vld1q_u8(from + 16 * i)));
  }

  // The instruction takes signed bytes: what is above 127 is brought down by a bias.
  template <int kBits>
  struct Products {
    static constexpr int kRows = 4;
    static constexpr int kColumns = 1;
    static constexpr int32_t kBias = kBits == 8 ? kKeyBias : 0;

    using Sum = NeonDotVectors::Sum;
    using Weights = Panel;
    using Factor = NeonDotVectors::Factor;

    static EDGE_RAG_INLINE Sum start(int32_t x) {
      return each<Sum>([&](int) { return vdupq_n_s32(x); });
    }
    static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
    static EDGE_RAG_INLINE Weights load(const uint8_t* from) { return load_keys(from, from + kLanes * kQuad); }
    static EDGE_RAG_INLINE Weights load_rewritten(const uint8_t* from) { return load_values(from, from + kLanes * kQuad); }
    static EDGE_RAG_INLINE Weights load_nibbles(const uint8_t* from) {
      Weights weights;
      for (int i = 0; i < 4; ++i) {
        const uint8x16_t bytes = vld1q_u8(from + 16 * i);
        weights.part[i] = vreinterpretq_s8_u8(low_nibbles(bytes));
        weights.part[4 + i] = vreinterpretq_s8_u8(high_nibbles(bytes));
      }
      return weights;
    }
    static EDGE_RAG_INLINE Factor factor(const int8_t* from) { return vld1_s8(from); }
    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, Factor factor) {
      return add_key_products(sum, weights, factor);
    }
  };
};

}  // namespace
}  // namespace edge_rag
