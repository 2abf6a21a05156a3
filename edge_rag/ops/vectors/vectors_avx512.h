// Vectors of AVX-512 (F, BW, DQ and VL): 16 lanes are one register. Products are of 16-bit integers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "page_layout.h"

namespace edge_rag {
namespace {

struct Avx512Vectors {
  static constexpr int kRows = 8;
  static constexpr int kColumns = 1;
  static constexpr int kMatrixRows = 1;
  static constexpr int kStepQuads = 1;
  static constexpr bool kRewritesBytes = false;
  static constexpr int kPasses = 1;
  static constexpr int kFloatRows = 8;
  static constexpr int kFloatColumns = 3;

  using Floats = __m512;
  using Ints = __m512i;

  static EDGE_RAG_INLINE Floats set(float x) { return _mm512_set1_ps(x); }
  static EDGE_RAG_INLINE Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static EDGE_RAG_INLINE void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static EDGE_RAG_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static EDGE_RAG_INLINE Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static EDGE_RAG_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static EDGE_RAG_INLINE Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static EDGE_RAG_INLINE Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static EDGE_RAG_INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static EDGE_RAG_INLINE Floats by_sign(Floats x, Floats negative, Floats otherwise) {
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), otherwise, negative);
  }
  static EDGE_RAG_INLINE Floats first_lanes(int64_t count, Floats x, Floats otherwise) {
    const auto lanes = static_cast<__mmask16>(count >= kLanes ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
    return _mm512_mask_blend_ps(lanes, otherwise, x);
  }
  static EDGE_RAG_INLINE float largest(Floats x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  static EDGE_RAG_INLINE Floats larger_magnitude(Floats a, Floats b) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                                _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
  }
  static EDGE_RAG_INLINE float largest_magnitude(Floats x) {
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_castps_si512(x));
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }
  static EDGE_RAG_INLINE float total(Floats x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

  static EDGE_RAG_INLINE Ints round(Floats x) {
    return _mm512_cvt_roundps_epi32(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static EDGE_RAG_INLINE Floats to_float(Ints x) { return _mm512_cvtepi32_ps(x); }
  static EDGE_RAG_INLINE Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static EDGE_RAG_INLINE Ints add(Ints a, int32_t b) { return _mm512_add_epi32(a, _mm512_set1_epi32(b)); }
  static EDGE_RAG_INLINE Ints multiply(Ints a, int32_t b) { return _mm512_mullo_epi32(a, _mm512_set1_epi32(b)); }
  static EDGE_RAG_INLINE Ints load_bytes(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static EDGE_RAG_INLINE Floats load_halves(const uint8_t* from) { return _mm512_cvtph_ps(half(from)); }
  static EDGE_RAG_INLINE int32_t total(Ints x) { return _mm512_reduce_add_epi32(x); }
  static EDGE_RAG_INLINE Floats scale_by_power(Floats x, Floats shifted) {
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), power));
  }

  static EDGE_RAG_INLINE void store_bytes(uint8_t* to, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
  }
  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t, int64_t at, Ints x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * at), _mm512_cvtepi32_epi16(x));
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  // Lanes 0 to 7 and 8 to 15; of each, the products of the first two and of the last two bytes are summed apart.
  struct Sum {
    __m512i low;
    __m512i high;
  };
  using Panel = Sum;  // widened to 16 bits
  using Factor = __m512i;

  static EDGE_RAG_INLINE Sum zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) {
    const __m512i bias = _mm512_set1_epi64(static_cast<uint32_t>(-kKeyBias * row_sum));
    return {bias, bias};
  }
  static EDGE_RAG_INLINE Sum shift(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(sum.low, even, sum.high),
                            _mm512_permutex2var_epi32(sum.low, odd, sum.high));
  }
  static EDGE_RAG_INLINE __m256i half(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* from) {
    return {_mm512_cvtepu8_epi16(half(from)), _mm512_cvtepu8_epi16(half(from + 32))};
  }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* from) {
    return {_mm512_cvtepi8_epi16(half(from)), _mm512_cvtepi8_epi16(half(from + 32))};
  }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t, int, int64_t at) {
    int64_t elements;
    std::memcpy(&elements, row + 2 * at, sizeof(elements));
    return _mm512_set1_epi64(elements);
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, Factor factor) {
    return {_mm512_add_epi32(sum.low, _mm512_madd_epi16(panel.low, factor)),
            _mm512_add_epi32(sum.high, _mm512_madd_epi16(panel.high, factor))};
  }
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, Factor factor) {
    return add_key_products(sum, panel, factor);
  }

  static EDGE_RAG_INLINE __m512i low_nibbles(const uint8_t* from) {
    return _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(15));
  }
  static EDGE_RAG_INLINE __m512i high_nibbles(const uint8_t* from) {
    return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(from), 4), _mm512_set1_epi8(15));
  }
  static EDGE_RAG_INLINE void split_nibbles(const uint8_t* from, uint8_t* to) {
    _mm512_storeu_si512(to, low_nibbles(from));
    _mm512_storeu_si512(to + kLanes * kQuad, high_nibbles(from));
  }
  static EDGE_RAG_INLINE __m512i same_quad(const int8_t* from) {
    int32_t elements;
    std::memcpy(&elements, from, sizeof(elements));
    return _mm512_set1_epi32(elements);
  }

  // Bytes are widened to 16 bits: two products of 255 and 127 do not fit them.
  template <int kBits>
  struct Products {
    static constexpr int kRows = 4;
    static constexpr int kColumns = 2;
    static constexpr int32_t kBias = 0;

    using Sum = Avx512Vectors::Sum;
    using Weights = Panel;
    using Factor = __m512i;

    static EDGE_RAG_INLINE Sum start(int32_t x) {
      const __m512i low = _mm512_set1_epi64(static_cast<uint32_t>(x));
      return {low, low};
    }
    static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return Avx512Vectors::finish(sum); }
    static EDGE_RAG_INLINE Weights load(const uint8_t* from) { return load_keys(from); }
    static EDGE_RAG_INLINE Factor factor(const int8_t* from) {
      int32_t elements;
      std::memcpy(&elements, from, sizeof(elements));
      return _mm512_cvtepi8_epi16(_mm256_set1_epi32(elements));
    }
    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, Factor factor) {
      return add_key_products(sum, weights, factor);
    }
  };
};

// What products of whole panels of bytes have in common, however they are summed.
struct Avx512ByteProducts {
  static constexpr int kColumns = 4;
  static constexpr int32_t kBias = 0;

  using Sum = __m512i;
  using Weights = __m512i;
  using Factor = __m512i;

  static EDGE_RAG_INLINE Sum start(int32_t x) { return _mm512_set1_epi32(x); }
  static EDGE_RAG_INLINE Avx512Vectors::Ints finish(Sum sum) { return sum; }
  static EDGE_RAG_INLINE Weights load(const uint8_t* from) { return _mm512_loadu_si512(from); }
  static EDGE_RAG_INLINE Weights load_low(const uint8_t* from) { return Avx512Vectors::low_nibbles(from); }
  static EDGE_RAG_INLINE Weights load_high(const uint8_t* from) { return Avx512Vectors::high_nibbles(from); }
  static EDGE_RAG_INLINE Factor factor(const int8_t* from) { return Avx512Vectors::same_quad(from); }
};

template <>
struct Avx512Vectors::Products<4> : Avx512ByteProducts {
  static constexpr int kRows = 5;

  // Two sums of 16 bits a lane, and as many quads as they hold.
  static constexpr int64_t kShortQuads = 8;
  static_assert(kShortQuads * 2 * 15 * 127 <= INT16_MAX, "no sum overflows");

  static EDGE_RAG_INLINE Sum add_short(Sum sum, Sum part) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(part, _mm512_set1_epi16(1)));
  }
  static EDGE_RAG_INLINE Sum add(Sum part, Weights weights, Factor factor) {
    return _mm512_add_epi16(part, _mm512_maddubs_epi16(weights, factor));
  }
};

}  // namespace
}  // namespace edge_rag
