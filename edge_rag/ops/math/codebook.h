// The levels that 4 bits stand for, and the search for the nearest ones. They are those of least square error (Lloyd, 1982;
// Max, 1960) for blocks of 64 normally distributed numbers in units of 1/127 of the largest: what a head is after a
// Hadamard transform. `scripts.bench.quality.kv_precision (commit ceb89611)` computes
// them.
#pragma once

#include <cstdint>
#include <cstring>

#include "quantize.h"

namespace edge_rag {
namespace {

constexpr int kLevels = 16;
alignas(16) constexpr int8_t kValueLevels[kLevels] = {-121, -95, -75, -59, -44, -31, -18, -6,
                                                      6,    18,  31,  44,  59,  75,  95,  121};
// The same as bytes with the bias of keys.
alignas(16) constexpr uint8_t kKeyLevels[kLevels] = {7,   33,  53,  69,  84,  97,  110, 122,
                                                     134, 146, 159, 172, 187, 203, 223, 249};

template <class V>
struct NearestLevel {
  typename V::Floats index;
  typename V::Floats level;
};

template <class V>
EDGE_RAG_INLINE NearestLevel<V> nearest_level(typename V::Floats x) {
  const auto none = V::set(0.0f);
  auto index = none;
  auto level = V::set(static_cast<float>(kValueLevels[0]));
#pragma GCC unroll 1
  for (int i = 1; i < kLevels; ++i) {
    const float middle = 0.5f * static_cast<float>(kValueLevels[i - 1] + kValueLevels[i]);
    const auto above = V::subtract(x, V::set(middle));
    index = V::add(index, V::by_sign(above, none, V::set(1.0f)));
    level = V::add(level, V::by_sign(above, none, V::set(static_cast<float>(kValueLevels[i] - kValueLevels[i - 1]))));
  }
  return {index, level};
}

// Writes the index of each element's level, a byte each. The levels are chosen for the largest magnitude first; then the
// scale is the one of least square error for them, and they are chosen once more. A head of zeros has the scale 0 and
// any levels.
template <class V>
EDGE_RAG_INLINE Quantization code_head(const float* in, int64_t size, uint8_t* indices) {
  const Quantization how = quantization<V>(in, size, 127.0f);
  if (how.zeros()) {
    std::memset(indices, 0, static_cast<size_t>(size));
    return how;
  }
  auto products = V::set(0.0f);
  auto squares = V::set(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) {
    const auto x = V::multiply(V::load(in + i), V::set(how.inverse));
    const auto level = nearest_level<V>(x).level;
    products = V::fused(x, level, products);
    squares = V::fused(level, level, squares);
  }
  const float fitted = how.scale * (V::total(products) / V::total(squares));
  const auto inverse = V::set(1.0f / fitted);
  for (int64_t i = 0; i < size; i += kLanes) {
    const auto x = V::multiply(V::load(in + i), inverse);
    V::store_bytes(indices + i, V::round(nearest_level<V>(x).index));
  }
  return {1.0f / fitted, fitted, true};
}

}  // namespace
}  // namespace edge_rag
