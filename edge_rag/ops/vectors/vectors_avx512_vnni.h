// AVX-512 with its dot-product instruction, which sums 4 products of an unsigned and a signed byte. A row is kept as
// two digits of an element: element = 128 * high + low, high in [-127, 127], low in [0, 127]; first all high, then all
// low.
#pragma once

#include "vectors_avx512.h"

namespace edge_rag {
namespace {

struct Avx512VnniVectors : Avx512Vectors {
  static constexpr int kRows = 8;
  static constexpr int kColumns = 3;
  static constexpr int kPasses = 2;

  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t elements, int64_t at, Ints x) {
    store_bytes(row + at, _mm512_srai_epi32(x, 7));
    store_bytes(row + elements + at, _mm512_and_si512(x, _mm512_set1_epi32(127)));
  }
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    // Packing goes by quarters of a register, so that the 32-bit groups come out in the order of this table.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i first = _mm512_packs_epi32(x[0], x[1]);
    const __m512i second = _mm512_packs_epi32(x[2], x[3]);
    const __m512i low_bits = _mm512_set1_epi16(127);
    const __m512i high = _mm512_packs_epi16(_mm512_srai_epi16(first, 7), _mm512_srai_epi16(second, 7));
    const __m512i low = _mm512_packs_epi16(_mm512_and_si512(first, low_bits), _mm512_and_si512(second, low_bits));
    _mm512_storeu_si512(row + at, _mm512_permutexvar_epi32(order, high));
    _mm512_storeu_si512(row + kElements + at, _mm512_permutexvar_epi32(order, low));
  }

  using Sum = __m512i;
  using Panel = __m512i;
  using Factor = __m512i;

  static EDGE_RAG_INLINE Sum zero() { return _mm512_setzero_si512(); }
  // The sums of the first pass are multiplied by 128, which is the bias, before the second.
  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) { return _mm512_set1_epi32(-row_sum); }
  static EDGE_RAG_INLINE Sum shift(Sum sum) { return _mm512_slli_epi32(sum, 7); }
  static EDGE_RAG_INLINE Ints finish(Sum sum) { return sum; }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* from) { return _mm512_loadu_si512(from); }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* from) { return _mm512_loadu_si512(from); }
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t elements, int pass, int64_t at) {
    int32_t digits;
    std::memcpy(&digits, row + pass * elements + at, sizeof(digits));
    return _mm512_set1_epi32(digits);
  }
  // Written out, because of the intrinsic GCC 12 copies all sums in every turn of the loop.
  static EDGE_RAG_INLINE Sum dot_product(Sum sum, __m512i unsigned_bytes, __m512i signed_bytes) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
    return sum;
  }
  static EDGE_RAG_INLINE Sum add_key_products(Sum sum, Panel panel, Factor factor) {
    return dot_product(sum, panel, factor);
  }
  // A weight is never negative, so that here the row is the unsigned operand.
  static EDGE_RAG_INLINE Sum add_value_products(Sum sum, Panel panel, Factor factor) {
    return dot_product(sum, factor, panel);
  }

  template <int kBits>
  struct Products : Avx512ByteProducts {
    static constexpr int kRows = 6;

    static EDGE_RAG_INLINE Sum add(Sum sum, Weights weights, Factor factor) { return dot_product(sum, weights, factor); }
  };
};

}  // namespace
}  // namespace edge_rag
