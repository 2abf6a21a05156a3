// AVX2 with the dot-product instruction of AVX-VNNI, for processors that have it and no AVX-512. Rows are kept as in
// the build for AVX-512: two digits of an element, element = 128 * high + low; first all high, then all low.
#pragma once

#include "vectors_avx2.h"

namespace edge_rag {
namespace {

struct AvxVnniVectors : Avx2Vectors {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 1;
  static constexpr int kPasses = 2;

  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t elements, int64_t at, const Ints& x) {
    const __m256i low_bits = _mm256_set1_epi32(127);
    store_bytes(row + at, {_mm256_srai_epi32(x.low, 7), _mm256_srai_epi32(x.high, 7)});
    store_bytes(row + elements + at, {_mm256_and_si256(x.low, low_bits), _mm256_and_si256(x.high, low_bits)});
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  using Sum = Ints;
  using Panel = Ints;
  using Factor = __m256i;

  static EDGE_RAG_INLINE Sum same(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static EDGE_RAG_INLINE Sum zero() { return same(0); }
  // The sums of the first pass are multiplied by 128, which is the bias, before the second.
  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) { return same(-row_sum); }
  static EDGE_RAG_INLINE Sum shift(const Sum& sum) {
    return {_mm256_slli_epi32(sum.low, 7), _mm256_slli_epi32(sum.high, 7)};
  }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* from) { return {half(from, 0), half(from, 1)}; }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* from) { return load_keys(from); }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t elements, int pass, int64_t at) {
    int32_t digits;
    std::memcpy(&digits, row + pass * elements + at, sizeof(digits));
    return _mm256_set1_epi32(digits);
  }
  // Written out, so that compilers and flags that know nothing of the instruction do; assemblers take it for that of
  // AVX-512 unless told.
  static EDGE_RAG_INLINE __m256i dot_product(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
    return sum;
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, Factor factor) {
    return {dot_product(sum.low, panel.low, factor), dot_product(sum.high, panel.high, factor)};
  }
  // A weight is never negative, so that here the row is the unsigned operand.
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, Factor factor) {
    return {dot_product(sum.low, factor, panel.low), dot_product(sum.high, factor, panel.high)};
  }

  template <int kBits>
  struct Products : Avx2ByteProducts {
    static constexpr int kRows = 6;

    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, Factor factor) {
      return add_key_products(sum, weights, factor);
    }
  };
};

}  // namespace
}  // namespace edge_rag
