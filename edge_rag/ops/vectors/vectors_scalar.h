// Vectors in plain C++: what every other instruction set must compute, bit for bit.
//
// A vector has 16 lanes whatever the registers are. Floats and Ints hold a lane each of float and int32.
// A panel is 64 bytes of a page: 16 lanes of 4 consecutive bytes. A factor is 4 elements of a row, the same for all
// lanes. A Sum adds up, per lane, the products of the 4 bytes and the 4 elements.
// A row holds 15-bit integers in [-16256, 16256], in a form of the instruction set's own, 2 bytes an element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"
#include "page_layout.h"

namespace edge_rag {
namespace {

struct ScalarVectors {
  // The register tile: rows, and vectors of lanes, that one pass over a page works on.
  static constexpr int kRows = 4;
  static constexpr int kColumns = 1;
  // Rows of activations that a sum is of: 2 with matrix instructions. vectors_neon_i8mm.h says what is then different.
  static constexpr int kMatrixRows = 1;
  // Quads that are loaded and multiplied together, 1 or 2; with 2 a Panel and a Weights are of two, and a Factor is 8
  // elements.
  static constexpr int kStepQuads = 1;
  // Whether 8-bit weights are rewritten, once for many rows, to the form in which they are multiplied.
  static constexpr bool kRewritesBytes = false;
  // Passes over a row's elements; the sums of a pass count 128 times those of the next.
  static constexpr int kPasses = 1;
  // The same of products of floats.
  static constexpr int kFloatRows = 4;
  static constexpr int kFloatColumns = 1;

  struct Floats {
    float lane[kLanes];
  };
  struct Ints {
    int32_t lane[kLanes];
  };

  template <class Result, class Operation>
  static EDGE_RAG_INLINE Result each(Operation operation) {
    Result result;
    for (int64_t i = 0; i < kLanes; ++i) result.lane[i] = operation(i);
    return result;
  }

  static EDGE_RAG_INLINE Floats set(float x) { return each<Floats>([&](int64_t) { return x; }); }
  static EDGE_RAG_INLINE Floats load(const float* from) { return each<Floats>([&](int64_t i) { return from[i]; }); }
  static EDGE_RAG_INLINE void store(float* to, const Floats& x) { std::memcpy(to, x.lane, sizeof(x.lane)); }
  static EDGE_RAG_INLINE Floats add(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return a.lane[i] + b.lane[i]; });
  }
  static EDGE_RAG_INLINE Floats subtract(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return a.lane[i] - b.lane[i]; });
  }
  static EDGE_RAG_INLINE Floats multiply(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return a.lane[i] * b.lane[i]; });
  }
  static EDGE_RAG_INLINE Floats divide(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return a.lane[i] / b.lane[i]; });
  }
  // a * b + c, rounded once.
  static EDGE_RAG_INLINE Floats fused(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int64_t i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  // Where b is not a number, neither is the result; where a is not, the result may be b.
  static EDGE_RAG_INLINE Floats larger(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  // negative where x has its sign bit set, otherwise in the rest.
  static EDGE_RAG_INLINE Floats by_sign(const Floats& x, const Floats& negative, const Floats& otherwise) {
    return each<Floats>([&](int64_t i) { return __builtin_signbit(x.lane[i]) ? negative.lane[i] : otherwise.lane[i]; });
  }
  // x in the first count lanes, otherwise in the rest.
  static EDGE_RAG_INLINE Floats first_lanes(int64_t count, const Floats& x, const Floats& otherwise) {
    return each<Floats>([&](int64_t i) { return i < count ? x.lane[i] : otherwise.lane[i]; });
  }
  static EDGE_RAG_INLINE float largest(const Floats& x) {
    float result = x.lane[0];
    for (int64_t i = 1; i < kLanes; ++i) result = result > x.lane[i] ? result : x.lane[i];
    return result;
  }
  // The magnitudes as integers, which order like the floats they are: those that are not finite come last.
  static EDGE_RAG_INLINE Floats larger_magnitude(const Floats& a, const Floats& b) {
    return each<Floats>([&](int64_t i) { return of_larger_magnitude(a.lane[i], b.lane[i]); });
  }
  static EDGE_RAG_INLINE float of_larger_magnitude(float a, float b) {
    uint32_t bits[2];
    std::memcpy(&bits[0], &a, sizeof(a));
    std::memcpy(&bits[1], &b, sizeof(b));
    return (bits[1] & 0x7FFFFFFFu) > (bits[0] & 0x7FFFFFFFu) ? b : a;
  }
  static EDGE_RAG_INLINE float largest_magnitude(const Floats& x) {
    float result = x.lane[0];
    for (int64_t i = 1; i < kLanes; ++i) result = of_larger_magnitude(result, x.lane[i]);
    return __builtin_fabsf(result);
  }
  // Sums lanes that are 8 apart, then 4, 2 and 1.
  static EDGE_RAG_INLINE float total(const Floats& x) {
    Floats sums = x;
    for (int64_t apart = kLanes / 2; apart > 0; apart /= 2) {
      for (int64_t i = 0; i < apart; ++i) sums.lane[i] += sums.lane[i + apart];
    }
    return sums.lane[0];
  }

  // To the nearest, ties to even; |x| < 2^31, or the result is unspecified.
  static EDGE_RAG_INLINE Ints round(const Floats& x) {
    return each<Ints>([&](int64_t i) {
      const float nearest = __builtin_nearbyintf(x.lane[i]);
      return nearest == nearest ? static_cast<int32_t>(nearest) : 0;
    });
  }
  static EDGE_RAG_INLINE Floats to_float(const Ints& x) {
    return each<Floats>([&](int64_t i) { return static_cast<float>(x.lane[i]); });
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, const Ints& b) {
    return each<Ints>([&](int64_t i) { return a.lane[i] + b.lane[i]; });
  }
  static EDGE_RAG_INLINE Ints add(const Ints& a, int32_t b) {
    return each<Ints>([&](int64_t i) { return a.lane[i] + b; });
  }
  static EDGE_RAG_INLINE Ints multiply(const Ints& a, int32_t b) {
    return each<Ints>([&](int64_t i) { return a.lane[i] * b; });
  }
  static EDGE_RAG_INLINE Ints load_bytes(const uint8_t* from) {
    return each<Ints>([&](int64_t i) { return static_cast<int32_t>(from[i]); });
  }
  static EDGE_RAG_INLINE Floats load_halves(const uint8_t* from) {
    uint16_t halves[kLanes];
    std::memcpy(halves, from, sizeof(halves));
    return each<Floats>([&](int64_t i) { return half_to_float(halves[i]); });
  }
  static EDGE_RAG_INLINE int32_t total(const Ints& x) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kLanes; ++i) sum += x.lane[i];
    return sum;
  }
  // x * 2^n, where the low bits of the float `shifted` hold n and the result is a normal number.
  static EDGE_RAG_INLINE Floats scale_by_power(const Floats& x, const Floats& shifted) {
    return each<Floats>([&](int64_t i) {
      uint32_t bits;
      uint32_t power;
      std::memcpy(&bits, &x.lane[i], sizeof(bits));
      std::memcpy(&power, &shifted.lane[i], sizeof(power));
      bits += power << 23;
      float result;
      std::memcpy(&result, &bits, sizeof(result));
      return result;
    });
  }

  // The low byte of each lane.
  static EDGE_RAG_INLINE void store_bytes(uint8_t* to, const Ints& x) {
    for (int64_t i = 0; i < kLanes; ++i) to[i] = static_cast<uint8_t>(x.lane[i]);
  }
  // Writes elements [at, at + 16) of a row that has room for `elements`.
  static EDGE_RAG_INLINE void store_row(uint8_t* row, int64_t elements, int64_t at, const Ints& x) {
    (void)elements;
    for (int64_t i = 0; i < kLanes; ++i) {
      const auto element = static_cast<int16_t>(x.lane[i]);
      std::memcpy(row + 2 * (at + i), &element, sizeof(element));
    }
  }
  // Writes elements [at, at + 64) of a row that has room for kElements.
  template <int64_t kElements>
  static EDGE_RAG_INLINE void store_row_of_64(uint8_t* row, int64_t at, const Ints (&x)[4]) {
    for (int64_t i = 0; i < 4; ++i) store_row(row, kElements, at + i * kLanes, x[i]);
  }

  using Sum = Ints;
  struct Panel {
    int16_t byte[kLanes * kQuad];
  };
  struct Factor {
    int16_t element[kQuad];
  };
  static EDGE_RAG_INLINE Sum zero() { return each<Sum>([](int64_t) { return 0; }); }
  static EDGE_RAG_INLINE Sum start_keys(int32_t row_sum) {
    (void)row_sum;  // the bias is taken off when keys are loaded
    return zero();
  }
  static EDGE_RAG_INLINE Sum shift(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
  static EDGE_RAG_INLINE Panel load_keys(const uint8_t* from) {
    Panel panel;
    for (int64_t i = 0; i < kLanes * kQuad; ++i) panel.byte[i] = static_cast<int16_t>(from[i] - kKeyBias);
    return panel;
  }
  static EDGE_RAG_INLINE Panel load_values(const uint8_t* from) {
    Panel panel;
    for (int64_t i = 0; i < kLanes * kQuad; ++i) panel.byte[i] = static_cast<int8_t>(from[i]);
    return panel;
  }
  // Elements [at, at + 4) of a row.
  static EDGE_RAG_INLINE Factor factor(const uint8_t* row, int64_t elements, int pass, int64_t at) {
    (void)elements;
    (void)pass;
    Factor result;
    std::memcpy(result.element, row + 2 * at, sizeof(result.element));
    return result;
  }
  static EDGE_RAG_INLINE Sum add_products(const Sum& sum, const Panel& panel, const Factor& factor) {
    return each<Sum>([&](int64_t i) {
      int32_t result = sum.lane[i];
      for (int64_t j = 0; j < kQuad; ++j) result += panel.byte[kQuad * i + j] * factor.element[j];
      return result;
    });
  }
  static EDGE_RAG_INLINE Sum add_key_products(const Sum& sum, const Panel& panel, const Factor& factor) {
    return add_products(sum, panel, factor);
  }
  static EDGE_RAG_INLINE Sum add_value_products(const Sum& sum, const Panel& panel, const Factor& factor) {
    return add_products(sum, panel, factor);
  }

  // Products of quantized matrices: Weights are 64 bytes below 2^kBits, 16 lanes of 4; a Factor is 4 signed bytes, the
  // same for all lanes; what is added up is the products of weights less kBias. kRows and kColumns as above.
  template <int kBits>
  struct Products {
    static constexpr int kRows = 2;
    static constexpr int kColumns = 1;
    static constexpr int32_t kBias = 0;

    using Sum = Ints;
    struct Weights {
      uint8_t byte[kLanes * kQuad];
    };
    struct Factor {
      int8_t element[kQuad];
    };
    static EDGE_RAG_INLINE Sum start(int32_t x) { return each<Sum>([&](int64_t) { return x; }); }
    static EDGE_RAG_INLINE Ints finish(const Sum& sum) { return sum; }
    static EDGE_RAG_INLINE Weights load(const uint8_t* from) {
      Weights weights;
      std::memcpy(weights.byte, from, sizeof(weights.byte));
      return weights;
    }
    // The low and the high nibbles of 64 bytes.
    static EDGE_RAG_INLINE Weights load_low(const uint8_t* from) {
      Weights weights;
      for (int64_t i = 0; i < kLanes * kQuad; ++i) weights.byte[i] = from[i] & 15;
      return weights;
    }
    static EDGE_RAG_INLINE Weights load_high(const uint8_t* from) {
      Weights weights;
      for (int64_t i = 0; i < kLanes * kQuad; ++i) weights.byte[i] = static_cast<uint8_t>(from[i] >> 4);
      return weights;
    }
    static EDGE_RAG_INLINE Factor factor(const int8_t* from) {
      Factor factor;
      std::memcpy(factor.element, from, sizeof(factor.element));
      return factor;
    }
    static EDGE_RAG_INLINE Sum add(const Sum& sum, const Weights& weights, const Factor& factor) {
      return each<Sum>([&](int64_t i) {
        int32_t result = sum.lane[i];
        for (int64_t j = 0; j < kQuad; ++j) result += weights.byte[kQuad * i + j] * factor.element[j];
        return result;
      });
    }
  };
  // 64 bytes of two nibbles each become 128 bytes: all low ones, then all high ones.
  static EDGE_RAG_INLINE void split_nibbles(const uint8_t* from, uint8_t* to) {
    for (int64_t i = 0; i < kLanes * kQuad; ++i) {
      to[i] = from[i] & 15;
      to[kLanes * kQuad + i] = static_cast<uint8_t>(from[i] >> 4);
    }
  }
};

}  // namespace
}  // namespace edge_rag
