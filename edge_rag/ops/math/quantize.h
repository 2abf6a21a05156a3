// Rotation and quantization of heads.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "step.h"

namespace edge_rag {
namespace {

// Below this a head is kept as zeros: its reciprocal would not be finite.
constexpr float kSmallestMagnitude = 1e-30f;

// Elements of a row are integers up to this: two digits of 7 bits.
constexpr float kRowLimit = 127.0f * 128.0f;

// Su et al., RoFormer, 2021, in the half-split form: pair (i, i + pairs) is turned by an angle of its own. Fills out up
// to a whole number of vectors, with zeros.
template <class V>
EDGE_RAG_INLINE void turn(const float* in, int64_t size, int64_t pairs, const float* cosine, const float* sine,
                          float* out) {
  int64_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const auto first = V::load(in + i);
    const auto second = V::load(in + i + pairs);
    const auto c = V::load(cosine + i);
    const auto s = V::load(sine + i);
    V::store(out + i, V::subtract(V::multiply(first, c), V::multiply(second, s)));
    V::store(out + i + pairs, V::add(V::multiply(second, c), V::multiply(first, s)));
  }
  for (; i < pairs; ++i) {
    const float first = in[i];
    const float second = in[i + pairs];
    out[i] = first * cosine[i] - second * sine[i];
    out[i + pairs] = second * cosine[i] + first * sine[i];
  }
  for (int64_t rest = 2 * pairs; rest < size; ++rest) out[rest] = in[rest];
  for (int64_t rest = size; rest % kLanes != 0; ++rest) out[rest] = 0.0f;
}

// Turns a head by the angles of a position.
template <class V>
EDGE_RAG_INLINE void rotate(const float* in, const Step& step, int64_t position, float* out) {
  const int64_t pairs = step.rotary_pairs;
  turn<V>(in, step.layout.head_size, pairs, step.cosine + position * pairs, step.sine + position * pairs, out);
}

EDGE_RAG_INLINE void copy_padded(const float* __restrict__ in, int64_t size, float* __restrict__ out) {
  for (int64_t i = 0; i < size; ++i) out[i] = in[i];
  for (int64_t i = size; i % kLanes != 0; ++i) out[i] = 0.0f;
}

// How a head is quantized: integer = round(x * inverse), x = integer * scale. The scale of a head that is not finite is
// NaN, so that what is made of it is NaN too and cannot be mistaken for a result; its integers are zeros.
struct Quantization {
  float inverse;
  float scale;
  bool finite;

  EDGE_RAG_INLINE bool zeros() const { return inverse == 0.0f; }
};

EDGE_RAG_INLINE Quantization quantization_of(float magnitude, float limit) {
  if (!(magnitude < __builtin_inff())) return {0.0f, __builtin_nanf(""), false};
  if (magnitude < kSmallestMagnitude) return {0.0f, 0.0f, true};
  return {limit / magnitude, magnitude / limit, true};
}

// Of a head that is filled up with zeros to a whole number of vectors.
template <class V>
EDGE_RAG_INLINE Quantization quantization(const float* in, int64_t size, float limit) {
  auto largest = V::set(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) largest = V::larger_magnitude(largest, V::load(in + i));
  return quantization_of(V::largest_magnitude(largest), limit);
}

template <class V>
EDGE_RAG_INLINE void quantize_bytes(const float* in, int64_t size, const Quantization& how, int32_t bias,
                                    uint8_t* out) {
  if (how.zeros()) {
    for (int64_t i = 0; i < size; ++i) out[i] = static_cast<uint8_t>(bias);
    return;
  }
  const auto inverse = V::set(how.inverse);
  for (int64_t i = 0; i < size; i += kLanes) {
    V::store_bytes(out + i, V::add(V::round(V::multiply(V::load(in + i), inverse)), bias));
  }
}

constexpr float kLog2E = 1.44269504088896341f;

// A query as a row: kElements elements, their sum, and what a score in powers of two is in units of row times key.
struct QueryRow {
  int32_t sum;
  float scale;
};

template <class V, int64_t kElements>
EDGE_RAG_INLINE QueryRow quantize_query(const Step& step, int64_t token, int64_t head, uint8_t* row) {
  const int64_t size = step.layout.head_size;
  alignas(64) float values[kMaxHeadSize];
  rotate<V>(step.query.data + token * step.query.token_stride + head * size, step, step.positions[token], values);
  const Quantization how = quantization<V>(values, size, kRowLimit);
  auto sum = V::round(V::set(0.0f));
  const auto inverse = V::set(how.inverse);
  for (int64_t i = 0; i < size; i += kLanes) {
    const auto x = how.zeros() ? V::set(0.0f) : V::load(values + i);
    const auto element = V::round(V::multiply(x, inverse));
    sum = V::add(sum, element);
    V::store_row(row, kElements, i, element);
  }
  return {V::total(sum), how.scale * (step.scale * kLog2E)};
}

}  // namespace
}  // namespace edge_rag
