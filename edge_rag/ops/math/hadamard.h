// The orthonormal Hadamard transform, which is its own inverse. It spreads what is large in a few dimensions of a head
// over many, so that a few bits suffice for all of them (Ashkboos et al., QuaRot, 2024).
#pragma once

#include <cstdint>

#include "page_layout.h"

namespace edge_rag {
namespace {

// Transforms each block of a head; a block is the largest power of two that divides the head's size.
template <class V>
EDGE_RAG_INLINE void hadamard_transform(float* values, int64_t size) {
  const int64_t block = size & -size;
  const auto factor = V::set(1.0f / __builtin_sqrtf(static_cast<float>(block)));
  for (int64_t half = block / 2; half >= kLanes; half /= 2) {
    for (int64_t first = 0; first < size; first += 2 * half) {
      for (int64_t i = first; i < first + half; i += kLanes) {
        const auto a = V::load(values + i);
        const auto b = V::load(values + i + half);
        V::store(values + i, V::add(a, b));
        V::store(values + i + half, V::subtract(a, b));
      }
    }
  }
  for (int64_t i = 0; i < size; i += kLanes) {
    auto x = V::load(values + i);
    x = V::template butterfly<8>(x);
    x = V::template butterfly<4>(x);
    x = V::template butterfly<2>(x);
    x = V::template butterfly<1>(x);
    V::store(values + i, V::multiply(x, factor));
  }
}

}  // namespace
}  // namespace edge_rag
