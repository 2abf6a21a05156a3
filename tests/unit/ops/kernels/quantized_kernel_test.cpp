// Products with quantized matrices without ONNX Runtime, so that they can be tested for a processor that is emulated:
// every build that runs here against the scalar one, bit for bit, and against double precision over random shapes.
// Prints a checksum of all results and the builds; the exit status is 1 after the first difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels.h"

namespace edge_rag {
namespace {

constexpr double kTolerance = 3e-6;  // of a sum of magnitudes: sums over blocks are floats
constexpr double kGateTolerance = 1e-5;

struct Case {
  QuantizedMatrix matrix{};
  bool gated;
  int64_t rows;
  std::vector<uint8_t> weights, zero_points, scales, minima;  // scales and minima as they are stored
  std::vector<float> scale_factors, minimum_factors, activations;
};

Case make_case(std::mt19937& random) {
  const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto uniform = [&] { return static_cast<float>(random() >> 8) / 8388608.0f - 1.0f; };
  Case made;
  QuantizedMatrix& matrix = made.matrix;
  made.gated = below(3) == 0;
  made.rows = 1 + below(below(2) == 0 ? 8 : 40);
  matrix.rows = 1 + below(400);
  matrix.columns = (1 + below(90)) * (made.gated ? 2 : 1);
  matrix.bits = below(2) == 0 ? 4 : 8;
  matrix.block_rows = std::min<int64_t>(matrix.padded_rows(), 8 << below(7));
  matrix.blocks = (matrix.rows + matrix.block_rows - 1) / matrix.block_rows;
  const int64_t columns = matrix.columns / (made.gated ? 2 : 1);
  matrix.panels = (columns + kLanes - 1) / kLanes * (made.gated ? 2 : 1);
  made.weights.resize(static_cast<size_t>(matrix.panels * matrix.panel_bytes()));
  for (uint8_t& byte : made.weights) byte = static_cast<uint8_t>(random());
  const auto cells = static_cast<size_t>(matrix.at_scale(matrix.panels, 0));
  const auto zero = static_cast<Zero>(below(3));
  matrix.stored = zero == Zero::kPoints ? Stored::kFloat : static_cast<Stored>(below(3));
  matrix.group_blocks = below(2) == 0 ? 1 : matrix.blocks;
  const auto fill = [&](std::vector<uint8_t>& stored, std::vector<float>& factors, bool negative) {
    for (size_t i = 0; i < cells; ++i) {
      const float value = (negative ? uniform() : uniform() + 2.0f) / 256.0f;
      // Halves between 2^-9 and 2^-7, of either sign where they may be negative.
      const auto half = static_cast<uint16_t>(0x1800 + below(0x0800) + (negative ? below(2) << 15 : 0));
      const auto byte = static_cast<uint8_t>(random());
      const void* const from = matrix.stored == Stored::kFloat  ? static_cast<const void*>(&value)
                               : matrix.stored == Stored::kHalf ? static_cast<const void*>(&half)
                                                                : static_cast<const void*>(&byte);
      const auto* const bytes = static_cast<const uint8_t*>(from);
      stored.insert(stored.end(), bytes, bytes + bytes_of(matrix.stored));
    }
    if (matrix.stored != Stored::kByte) return;
    factors.resize(static_cast<size_t>(matrix.at_factor(matrix.panels, 0)));
    for (float& factor : factors) factor = (negative ? uniform() : uniform() + 2.0f) / 65536.0f;
  };
  fill(made.scales, made.scale_factors, false);
  if (zero == Zero::kMinima) fill(made.minima, made.minimum_factors, true);
  if (zero == Zero::kPoints) {
    made.zero_points.resize(cells);
    for (uint8_t& point : made.zero_points) point = static_cast<uint8_t>(random() % (matrix.bits == 4 ? 16 : 256));
    matrix.zero_points = made.zero_points.data();
  }
  matrix.weights = made.weights.data();
  matrix.scales = made.scales.data();
  matrix.minima = zero == Zero::kMinima ? made.minima.data() : nullptr;
  matrix.scale_factors = made.scale_factors.data();
  matrix.minimum_factors = made.minimum_factors.data();
  made.activations.resize(static_cast<size_t>(made.rows * matrix.rows));
  for (float& x : made.activations) x = uniform() * (below(50) == 0 ? 40.0f : 1.0f);
  return made;
}

// The products of all rows, the panels divided where `bound` says.
std::vector<float> run(const QuantizedKernels& build, const Case& in, int64_t bound) {
  const QuantizedMatrix& matrix = in.matrix;
  const int64_t stride = (matrix.block_rows + kLanes - 1) / kLanes * kLanes;
  const int64_t rows = in.rows == 1 ? 1 : (in.rows + 1) / 2 * 2;
  const auto cells = static_cast<size_t>(matrix.blocks * rows);
  std::vector<int8_t> integers(cells * static_cast<size_t>(stride));
  std::vector<float> scales(cells);
  std::vector<float> sums(cells);
  std::vector<int32_t> offsets(cells);
  const Activations activations{integers.data(), scales.data(), sums.data(), offsets.data(), rows, stride};
  build.quantize(in.activations.data(), matrix, 0, in.rows, activations);
  const int64_t columns = matrix.columns / (in.gated ? 2 : 1);
  std::vector<float> result(static_cast<size_t>(in.rows * columns));
  ProductOutput out{};
  out.data = result.data();
  out.columns = columns;
  out.epilogue = in.gated ? Epilogue::kGate : Epilogue::kNone;
  bound = std::min(bound, matrix.panels);
  if (bound > 0) build.multiply(activations, matrix, {0, in.rows, 0, bound}, out);
  if (bound < matrix.panels) build.multiply(activations, matrix, {0, in.rows, bound, matrix.panels}, out);
  return result;
}

// A scale or minimum.
double stored_value(const QuantizedMatrix& matrix, const void* from, int64_t at, const float* factors, int64_t factor) {
  switch (matrix.stored) {
    case Stored::kFloat: return static_cast<const float*>(from)[at];
    case Stored::kHalf: {
      const uint16_t half = static_cast<const uint16_t*>(from)[at];
      const double magnitude = std::ldexp(1024.0 + (half & 1023), ((half >> 10) & 31) - 25);
      return half >> 15 != 0 ? -magnitude : magnitude;
    }
    case Stored::kByte: return static_cast<double>(static_cast<const uint8_t*>(from)[at] * factors[factor]);
  }
  return 0.0;
}

struct Sum {
  double value;
  double magnitude;
};

Sum product(const Case& in, int64_t row, int64_t panel, int64_t lane) {
  const QuantizedMatrix& matrix = in.matrix;
  const float* activations = in.activations.data() + row * matrix.rows;
  Sum sum{0.0, 0.0};
  for (int64_t block = 0; block < matrix.blocks; ++block) {
    const int64_t begin = block * matrix.block_rows;
    const int64_t end = std::min(matrix.rows, begin + matrix.block_rows);
    float largest = 0.0f;
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(activations[k]));
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    const auto at = static_cast<size_t>(matrix.at_scale(panel, block) + lane);
    const auto offset_of_scale = static_cast<int64_t>(at);
    const int64_t factor = matrix.at_factor(panel, block) + lane;
    const bool minima = matrix.zero() == Zero::kMinima;
    const double scale = stored_value(matrix, matrix.scales, offset_of_scale, matrix.scale_factors, factor);
    const double minimum =
        minima ? stored_value(matrix, matrix.minima, offset_of_scale, matrix.minimum_factors, factor) : 0.0;
    const int32_t zero = minima ? 0 : in.zero_points.empty() ? matrix.middle() : in.zero_points[at];
    for (int64_t k = begin; k < end; ++k) {
      const int64_t line_rows = matrix.bits == 4 ? 2 * kQuad : kQuad;
      const int64_t offset = panel * matrix.panel_bytes() + k / line_rows * kLineBytes + lane * kQuad + k % kQuad;
      const int32_t byte = in.weights[static_cast<size_t>(offset)];
      const int32_t integer = matrix.bits == 8 ? byte : k % line_rows < kQuad ? byte & 15 : byte >> 4;
      const double product = (integer - zero) * scale;
      const double activation = std::nearbyint(activations[k] * inverse) * static_cast<double>(largest / 127.0f);
      sum.value += (product + minimum) * activation;
      sum.magnitude += (std::fabs(product) + std::fabs(minimum)) * std::fabs(activation);
    }
  }
  return sum;
}

// The largest error of the first, a middle and the last row, in units of what is tolerated.
double largest_error(const Case& in, const std::vector<float>& found) {
  const int64_t columns = in.matrix.columns / (in.gated ? 2 : 1);
  double worst = 0.0;
  for (const int64_t row : {int64_t{0}, in.rows / 2, in.rows - 1}) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t panel = column / kLanes * (in.gated ? 2 : 1);
      Sum expected = product(in, row, panel, column % kLanes);
      if (in.gated) {
        const Sum operand = product(in, row, panel + 1, column % kLanes);
        expected.value *= operand.value / (1.0 + std::exp(-expected.value));
        expected.magnitude = (1.0 + expected.magnitude) * operand.magnitude;
      }
      const double error = std::fabs(found[static_cast<size_t>(row * columns + column)] - expected.value);
      const double relative = error / (expected.magnitude * (in.gated ? kGateTolerance : kTolerance) + 1e-30);
      worst = relative <= worst ? worst : relative;  // keeps what is not a number
    }
  }
  return worst;
}

bool test(const Case& in, uint64_t& checksum) {
  const std::vector<float> expected = run(kernel_builds().front()->quantized, in, 0);
  for (const float value : expected) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    checksum = (checksum ^ bits) * uint64_t{1099511628211u};  // Fowler, Noll and Vo's hash
  }
  const double error = largest_error(in, expected);
  bool good = error <= 1.0;
  if (!good) std::printf("scalar: %g times the error that is tolerated\n", error);
  for (const KernelBuild* build : kernel_builds()) {
    for (const int64_t bound : {int64_t{0}, kPartPanels}) {
      const std::vector<float> found = run(build->quantized, in, bound);
      const bool same = std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0;
      if (!same) std::printf("%s: other bits than scalar\n", build->name);
      good = good && same;
    }
  }
  if (!good) {
    std::printf("  rows %d, %d x %d, bits %d, block %d%s%s\n", static_cast<int>(in.rows),
                static_cast<int>(in.matrix.rows), static_cast<int>(in.matrix.columns),
                static_cast<int>(in.matrix.bits), static_cast<int>(in.matrix.block_rows), in.gated ? ", gated" : "",
                in.matrix.zero() == Zero::kMiddle   ? ""
                : in.matrix.zero() == Zero::kPoints ? ", zero points"
                                                    : ", minima");
  }
  return good;
}

}  // namespace
}  // namespace edge_rag

int main(int argc, char** argv) {
  using namespace edge_rag;
  const int cases = argc > 1 ? std::atoi(argv[1]) : 100;
  std::mt19937 random(20);
  uint64_t checksum = 14695981039346656037u;
  for (int i = 0; i < cases; ++i) {
    if (!test(make_case(random), checksum)) return 1;
  }
  std::printf("%016llx", static_cast<unsigned long long>(checksum));
  for (const KernelBuild* build : kernel_builds()) std::printf(" %s", build->name);
  std::printf("\n");
  return 0;
}
