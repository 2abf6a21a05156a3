// Vectors of AVX2 and FMA: 16 lanes are two registers. Products are of 16-bit integers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "page_layout.h"

namespace edge_rag {
namespace {

struct Avx2Vectors {
  static constexpr int kRows = 2;
  static constexpr int kColumns = 1;
  static constexpr int kMatrixRows = 1;
  static constexpr int kStepQuads = 1;
  static constexpr bool kRewritesBytes = false;
  static constexpr int kPasses = 1;
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatColumns = 1;

  struct Floats {
    __m256 low;
    __m256 high;
  };
  struct Ints {
    __m256i low;
    __m256i high;
  };

  static EDGE_RAG_INLINE Floats set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static EDGE_RAG_INLINE Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static EDGE_RAG_INLINE void store(float* to, const Floats& x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
  }
  static EDGE_RAG_INLINE Floats add(const Floats& a, const Floats& b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Floats subtract(const Floats& a, const Floats& b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Floats multiply(const Floats& a, const Floats& b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Floats divide(const Floats& a, const Floats& b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Floats fused(const Floats& a, const Floats& b, const Floats& c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static EDGE_RAG_INLINE Floats larger(const Floats& a, const Floats& b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Floats by_sign(const Floats& x, const Floats& negative, const Floats& otherwise) {
    return {_mm256_blendv_ps(otherwise.low, negative.low, x.low),
            _mm256_blendv_ps(otherwise.high, negative.high, x.high)};
  }
  static EDGE_RAG_INLINE Floats first_lanes(int64_t count, const Floats& x, const Floats& otherwise) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const auto bound = static_cast<int32_t>(count > kLanes ? kLanes : count < 0 ? 0 : count);
    const __m256 low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(bound), lanes));
    const __m256 high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(bound - 8), lanes));
    return {_mm256_blendv_ps(otherwise.low, x.low, low), _mm256_blendv_ps(otherwise.high, x.high, high)};
  }
  static EDGE_RAG_INLINE float largest(const Floats& x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  static EDGE_RAG_INLINE Floats larger_magnitude(const Floats& a, const Floats& b) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    const auto larger_bits = [&](__m256 x, __m256 y) {
      return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(_mm256_and_ps(x, magnitude)),
                                                  _mm256_castps_si256(_mm256_and_ps(y, magnitude))));
    };
    return {larger_bits(a.low, b.low), larger_bits(a.high, b.high)};
  }
  static EDGE_RAG_INLINE float largest_magnitude(const Floats& x) {
    const __m256i eight = _mm256_max_epi32(_mm256_castps_si256(x.low), _mm256_castps_si256(x.high));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(four, _mm_shuffle_epi32(four, 1))));
  }
  static EDGE_RAG_INLINE float total(const Floats& x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

  // Conversions round as the processor is set to, which is to the nearest unless a program says otherwise.
  static EDGE_RAG_INLINE Ints round(const Floats& x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_cvttps_epi32(_mm256_round_ps(x.low, kNearest)),
            _mm256_cvttps_epi32(_mm256_round_ps(x.high, kNearest))};
  }
  static EDGE_RAG_INLINE Floats to_float(const Ints& x) {
    return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, const Ints& b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, int32_t b) {
    const __m256i right = _mm256_set1_epi32(b);
    return {_mm256_add_epi32(a.low, right), _mm256_add_epi32(a.high, right)};
  }
  static EDGE_RAG_INLINE Ints multiply(const Ints& a, int32_t b) {
    const __m256i right = _mm256_set1_epi32(b);
    return {_mm256_mullo_epi32(a.low, right), _mm256_mullo_epi32(a.high, right)};
  }
  static EDGE_RAG_INLINE Ints load_bytes(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static EDGE_RAG_INLINE Floats load_halves(const uint8_t* from) {
    return {_mm256_cvtph_ps(quarter(from, 0)), _mm256_cvtph_ps(quarter(from, 1))};
  }
  static EDGE_RAG_INLINE int32_t total(const Ints& x) {
    const __m256i eight = _mm256_add_epi32(x.low, x.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1)));
  }
  static EDGE_RAG_INLINE Floats scale_by_power(const Floats& x, const Floats& shifted) {
    const __m256i low = _mm256_slli_epi32(_mm256_castps_si256(shifted.low), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_castps_si256(shifted.high), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.low), low)),
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.high), high))};
  }

  // The lanes as 16-bit integers, which they must fit.
  static EDGE_RAG_INLINE __m256i narrow(const Ints& x) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xD8);
  }
  static EDGE_RAG_INLINE void store_bytes(uint8_t* to, const Ints& x) {
    const __m256i words = _mm256_and_si256(narrow(x), _mm256_set1_epi16(0xFF));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  }
  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t, int64_t at, const Ints& x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * at), narrow(x));
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  // Four lanes each; of each lane, the products of the first two and of the last two bytes are summed apart.
  struct Sum {
    __m256i quarter[4];
  };
  using Panel = Sum;  // widened to 16 bits
  using Factor = __m256i;

  static EDGE_RAG_INLINE Sum zero() {
    const __m256i none = _mm256_setzero_si256();
    return {{none, none, none, none}};
  }
  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) {
    const __m256i bias = _mm256_set1_epi64x(static_cast<uint32_t>(-kKeyBias * row_sum));
    return {{bias, bias, bias, bias}};
  }
  static EDGE_RAG_INLINE Sum shift(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) {
    const __m256i low = _mm256_hadd_epi32(sum.quarter[0], sum.quarter[1]);
    const __m256i high = _mm256_hadd_epi32(sum.quarter[2], sum.quarter[3]);
    return {_mm256_permute4x64_epi64(low, 0xD8), _mm256_permute4x64_epi64(high, 0xD8)};
  }
  static EDGE_RAG_INLINE __m128i quarter(const uint8_t* from, int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * i));
  }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* from) {
    return {{_mm256_cvtepu8_epi16(quarter(from, 0)), _mm256_cvtepu8_epi16(quarter(from, 1)),
             _mm256_cvtepu8_epi16(quarter(from, 2)), _mm256_cvtepu8_epi16(quarter(from, 3))}};
  }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* from) {
    return {{_mm256_cvtepi8_epi16(quarter(from, 0)), _mm256_cvtepi8_epi16(quarter(from, 1)),
             _mm256_cvtepi8_epi16(quarter(from, 2)), _mm256_cvtepi8_epi16(quarter(from, 3))}};
  }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t, int, int64_t at) {
    int64_t elements;
    std::memcpy(&elements, row + 2 * at, sizeof(elements));
    return _mm256_set1_epi64x(elements);
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, Factor factor) {
    Sum result;
    for (int i = 0; i < 4; ++i) {
      result.quarter[i] = _mm256_add_epi32(sum.quarter[i], _mm256_madd_epi16(panel.quarter[i], factor));
    }
    return result;
  }
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, Factor factor) {
    return add_key_products(sum, panel, factor);
  }

  static EDGE_RAG_INLINE __m256i half(const uint8_t* from, int64_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32 * i));
  }
  static EDGE_RAG_INLINE __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static EDGE_RAG_INLINE __m256i high_nibbles(__m256i x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }
  static EDGE_RAG_INLINE void split_nibbles(const uint8_t* from, uint8_t* to) {
    for (int64_t i = 0; i < 2; ++i) {
      const __m256i bytes = half(from, i);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * i), low_nibbles(bytes));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kLanes * kQuad + 32 * i), high_nibbles(bytes));
    }
  }

  // Bytes are widened to 16 bits: two products of 255 and 127 do not fit them.
  template <int kBits>
  struct Products {
    static constexpr int kRows = 2;
    static constexpr int kColumns = 1;
    static constexpr int32_t kBias = 0;

    using Sum = Avx2Vectors::Sum;
    using Weights = Panel;
    using Factor = __m256i;

    static EDGE_RAG_INLINE Sum start(int32_t x) {
      const __m256i low = _mm256_set1_epi64x(static_cast<uint32_t>(x));
      return {{low, low, low, low}};
    }
    static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return Avx2Vectors::finish(sum); }
    static EDGE_RAG_INLINE Weights load(const uint8_t* from) { return load_keys(from); }
    static EDGE_RAG_INLINE Factor factor(const int8_t* from) {
      int32_t elements;
      std::memcpy(&elements, from, sizeof(elements));
      return _mm256_cvtepi8_epi16(_mm_set1_epi32(elements));
    }
    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, Factor factor) {
      return add_key_products(sum, weights, factor);
    }
  };
};

// What products of whole panels of bytes have in common, however they are summed.
struct Avx2ByteProducts {
  static constexpr int kColumns = 1;
  static constexpr int32_t kBias = 0;

  using Ints = Avx2Vectors::Ints;
  using Sum = Ints;
  using Weights = Ints;
  using Factor = __m256i;

  static EDGE_RAG_INLINE Sum start(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Weights load(const uint8_t* from) {
    return {Avx2Vectors::half(from, 0), Avx2Vectors::half(from, 1)};
  }
  static EDGE_RAG_INLINE Weights load_low(const uint8_t* from) {
    const Weights bytes = load(from);
    return {Avx2Vectors::low_nibbles(bytes.low), Avx2Vectors::low_nibbles(bytes.high)};
  }
  static EDGE_RAG_INLINE Weights load_high(const uint8_t* from) {
    const Weights bytes = load(from);
    return {Avx2Vectors::high_nibbles(bytes.low), Avx2Vectors::high_nibbles(bytes.high)};
  }
  static EDGE_RAG_INLINE Factor factor(const int8_t* from) {
    int32_t elements;
    std::memcpy(&elements, from, sizeof(elements));
    return _mm256_set1_epi32(elements);
  }
};

template <>
struct Avx2Vectors::Products<4> : Avx2ByteProducts {
  static constexpr int kRows = 4;

  // Two sums of 16 bits a lane, and as many quads as they hold.
  static constexpr int64_t kShortQuads = 8;
  static_assert(kShortQuads * 2 * 15 * 127 <= INT16_MAX, "no sum overflows");

  static EDGE_RAG_INLINE __m256i sum_of_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  static EDGE_RAG_INLINE Sum add_short(const Sum& sum, const Sum& part) {
    return {_mm256_add_epi32(sum.low, sum_of_pairs(part.low)), _mm256_add_epi32(sum.high, sum_of_pairs(part.high))};
  }
  static EDGE_RAG_INLINE Sum add(const Sum& part, const Weights& weights, Factor factor) {
    return {_mm256_add_epi16(part.low, _mm256_maddubs_epi16(weights.low, factor)),
            _mm256_add_epi16(part.high, _mm256_maddubs_epi16(weights.high, factor))};
  }
};

}  // namespace
}  // namespace edge_rag
