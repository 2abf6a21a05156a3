#pragma once

#include "inlined.h"

namespace edge_rag {
namespace {

// 2^x for x <= 0, and 2^-125 below that; relative error below 5e-6. The fraction is in [-1/2, 1/2], where a polynomial
// of degree 4 that is 1 at 0 suffices; adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
template <class V>
EDGE_RAG_INLINE typename V::Floats power_of_two(typename V::Floats x) {
  const auto round = V::set(12582912.0f);
  const auto bounded = V::larger(V::set(-125.0f), x);
  const auto shifted = V::add(bounded, round);
  const auto fraction = V::subtract(bounded, V::subtract(shifted, round));
  auto power = V::set(9.582852945e-03f);
  power = V::fused(power, fraction, V::set(5.590642616e-02f));
  power = V::fused(power, fraction, V::set(2.402409911e-01f));
  power = V::fused(power, fraction, V::set(6.931241751e-01f));
  power = V::fused(power, fraction, V::set(1.0f));
  return V::scale_by_power(power, shifted);
}

}  // namespace
}  // namespace edge_rag
