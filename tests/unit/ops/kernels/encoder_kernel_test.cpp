// Attention within sequences and layer normalization without ONNX Runtime, so that they can be tested for a processor
// that is emulated: every build that runs here against the scalar one, bit for bit, and against double precision over
// random shapes. Prints a checksum of all results and the builds; the exit status is 1 after the first difference.
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

constexpr double kTolerance = 5e-5;  // of attention over values up to 1
constexpr double kNormTolerance = 2e-4;

using Floats = std::vector<float>;

struct Case {
  int64_t tokens, heads, head_size;
  int64_t window;  // 0: all tokens
  Floats qkv;
  Floats skip, scale, bias;  // of the normalization of rows of 3 * heads * head_size

  int64_t width() const { return heads * head_size; }
};

Case make_case(std::mt19937& random) {
  const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto uniform = [&](Floats& values, int64_t size) {
    values.resize(static_cast<size_t>(size));
    for (float& x : values) x = static_cast<float>(random() >> 8) / 8388608.0f - 1.0f;
  };
  Case made;
  made.tokens = 1 + below(below(2) == 0 ? 10 : 90);
  made.heads = 1 + below(3);
  made.head_size = kLanes * (1 + below(5));
  made.window = below(2) == 0 ? 0 : below(static_cast<uint32_t>(made.tokens) + 1);
  uniform(made.qkv, made.tokens * 3 * made.width());
  uniform(made.skip, below(2) * made.tokens * 3 * made.width());
  uniform(made.scale, 3 * made.width());
  uniform(made.bias, 3 * made.width());
  return made;
}

Floats attend(const EncoderKernels& build, const Case& in) {
  Floats result(static_cast<size_t>(in.tokens * in.width()));
  Floats room(static_cast<size_t>(room_floats(in.tokens, in.head_size)));
  const PackedHeads heads{in.qkv.data(), in.heads, in.head_size, 0.25f, in.window, result.data()};
  for (int64_t head = 0; head < in.heads; ++head) build.attend_sequence(heads, {0, in.tokens, head, room.data()});
  return result;
}

Floats normalize(const EncoderKernels& build, const Case& in) {
  Floats result(in.qkv.size());
  const float* const skip = in.skip.empty() ? nullptr : in.skip.data();
  const NormRows rows{in.qkv.data(), skip, in.scale.data(), in.bias.data(), 3 * in.width(), 1e-6f, result.data()};
  build.normalize(rows, 0, in.tokens / 2);
  build.normalize(rows, in.tokens / 2, in.tokens);
  return result;
}

double attention_error(const Case& in, const Floats& found) {
  const auto element = [&](int64_t token, int64_t part, int64_t head, int64_t i) {
    return static_cast<double>(
        in.qkv[static_cast<size_t>(((token * 3 + part) * in.heads + head) * in.head_size + i)]);
  };
  double worst = 0.0;
  for (int64_t head = 0; head < in.heads; ++head) {
    for (const int64_t token : {int64_t{0}, in.tokens / 2, in.tokens - 1}) {
      std::vector<double> weights;
      double sum = 0.0;
      for (int64_t t = 0; t < in.tokens; ++t) {
        if (in.window > 0 && std::abs(t - token) > in.window) {
          weights.push_back(0.0);
          continue;
        }
        double score = 0.0;
        for (int64_t i = 0; i < in.head_size; ++i) score += element(token, 0, head, i) * element(t, 1, head, i);
        weights.push_back(std::exp(0.25 * score));
        sum += weights.back();
      }
      for (int64_t i = 0; i < in.head_size; ++i) {
        double expected = 0.0;
        for (int64_t t = 0; t < in.tokens; ++t) expected += weights[static_cast<size_t>(t)] * element(t, 2, head, i);
        const auto at = static_cast<size_t>((token * in.heads + head) * in.head_size + i);
        const double error = std::fabs(found[at] - expected / sum);
        worst = error <= worst ? worst : error;  // keeps what is not a number
      }
    }
  }
  return worst;
}

double normalization_error(const Case& in, const Floats& found) {
  const int64_t columns = 3 * in.width();
  double worst = 0.0;
  for (int64_t row = 0; row < in.tokens; ++row) {
    std::vector<double> x;
    double mean = 0.0;
    for (int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<size_t>(row * columns + i);
      x.push_back(static_cast<double>(in.qkv[at]) + (in.skip.empty() ? 0.0 : static_cast<double>(in.skip[at])));
      mean += x.back() / static_cast<double>(columns);
    }
    double variance = 0.0;
    for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(columns);
    for (int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<size_t>(i);
      const double expected =
          (x[at] - mean) / std::sqrt(variance + 1e-6) * static_cast<double>(in.scale[at]) + static_cast<double>(in.bias[at]);
      const double error = std::fabs(found[static_cast<size_t>(row * columns + i)] - expected);
      worst = error <= worst ? worst : error;
    }
  }
  return worst;
}

bool test(const Case& in, uint64_t& checksum) {
  const EncoderKernels& scalar = kernel_builds().front()->encoder;
  const Floats attended = attend(scalar, in);
  const Floats normalized = normalize(scalar, in);
  for (const Floats* values : {&attended, &normalized}) {
    for (const float value : *values) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      checksum = (checksum ^ bits) * uint64_t{1099511628211u};  // Fowler, Noll and Vo's hash
    }
  }
  const double errors[] = {attention_error(in, attended) / kTolerance, normalization_error(in, normalized) / kNormTolerance};
  bool good = errors[0] <= 1.0 && errors[1] <= 1.0;
  if (!good) std::printf("scalar: %g and %g times the error that is tolerated\n", errors[0], errors[1]);
  for (const KernelBuild* build : kernel_builds()) {
    const auto same = [](const Floats& a, const Floats& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    const bool equal = same(attend(build->encoder, in), attended) && same(normalize(build->encoder, in), normalized);
    if (!equal) std::printf("%s: other bits than scalar\n", build->name);
    good = good && equal;
  }
  if (!good) {
    std::printf("  tokens %d, heads %d of %d\n", static_cast<int>(in.tokens), static_cast<int>(in.heads),
                static_cast<int>(in.head_size));
  }
  return good;
}

}  // namespace
}  // namespace edge_rag

int main(int argc, char** argv) {
  using namespace edge_rag;
  const int cases = argc > 1 ? std::atoi(argv[1]) : 100;
  std::mt19937 random(30);
  uint64_t checksum = 14695981039346656037u;
  for (int i = 0; i < cases; ++i) {
    if (!test(make_case(random), checksum)) return 1;
  }
  std::printf("%016llx", static_cast<unsigned long long>(checksum));
  for (const KernelBuild* build : kernel_builds()) std::printf(" %s", build->name);
  std::printf("\n");
  return 0;
}
