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

}  // namespace edge_rag
