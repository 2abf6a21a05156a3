// IEEE 754 half precision.
#pragma once

#include <cstdint>
#include <cstring>

#include "inlined.h"

namespace edge_rag {

// The same number as a float; a NaN stays one.
EDGE_RAG_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 1023;
  uint32_t bits;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal halves are normal floats
    std::memcpy(&bits, &magnitude, sizeof(bits));
  } else {
    const uint32_t widened = exponent == 31 ? 255 : exponent + 112;
    bits = widened << 23 | fraction << 13;
  }
  bits |= sign;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// To the nearest, ties to even; what is too large becomes infinite.
EDGE_RAG_INLINE uint16_t float_to_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > 0x7F800000) {
    half = 0x7E00;
  } else if (magnitude >= 0x477FF000) {  // from half a step above the largest on
    half = 0x7C00;
  } else if (magnitude >= 0x38800000) {
    half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  } else {
    float positive;
    std::memcpy(&positive, &magnitude, sizeof(positive));
    positive += 0.5f;  // whose last bit is the step of subnormal halves
    std::memcpy(&half, &positive, sizeof(half));
    half -= 0x3F000000;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace edge_rag
