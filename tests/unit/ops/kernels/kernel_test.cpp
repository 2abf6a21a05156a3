// The kernels alone, without ONNX Runtime, so that they can be tested for a processor that is emulated: every build
// that runs here against the scalar one, bit for bit, and against attention in double precision over random shapes.
// Prints a checksum of all results and the builds; the exit status is 1 after the first difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels.h"
#include "schedule.h"

namespace edge_rag {
namespace {

// Of a token's output, relative to what it would be if no values cancelled out: queries and weights are of 15 bits.
constexpr double kTolerance = 2e-4;

constexpr int64_t kNoWindow = 1 << 30;

struct Shape {
  int64_t kv_heads;
  int64_t group;
  int64_t head_size;
  int64_t pairs;
  int64_t page_tokens;
  std::vector<int64_t> contexts;  // of each sequence
  int64_t fresh;                  // last tokens of each sequence that attend
  int64_t window;
  float softcap;
};

struct Inputs {
  Shape shape;
  std::vector<float> query, key, value, cosine, sine;
  std::vector<int32_t> positions, slots, table;
  std::vector<uint8_t> pages;
  std::vector<Sequence> sequences;
  Step step{};
};

Inputs make_inputs(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<float>(random() >> 8) / 8388608.0f - 1.0f; };
  const auto fill = [&](std::vector<float>& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    for (float& value : values) value = uniform() + uniform() + uniform();
  };
  Inputs in;
  in.shape = shape;
  const int64_t longest = *std::max_element(shape.contexts.begin(), shape.contexts.end());
  const int64_t width = (longest + shape.page_tokens - 1) / shape.page_tokens;
  const auto sequences = static_cast<int64_t>(shape.contexts.size());
  in.table.resize(static_cast<size_t>(sequences * width));
  std::iota(in.table.begin(), in.table.end(), 0);
  std::shuffle(in.table.begin(), in.table.end(), random);
  int64_t tokens = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t context = shape.contexts[static_cast<size_t>(s)];
    in.sequences.push_back({s, tokens, tokens + context});
    for (int64_t position = 0; position < context; ++position) {
      const int32_t page = in.table[static_cast<size_t>(s * width + position / shape.page_tokens)];
      in.positions.push_back(static_cast<int32_t>(position));
      in.slots.push_back(static_cast<int32_t>(page * shape.page_tokens + position % shape.page_tokens));
    }
    tokens += context;
  }
  fill(in.query, tokens * shape.kv_heads * shape.group * shape.head_size);
  fill(in.key, tokens * shape.kv_heads * shape.head_size);
  fill(in.value, tokens * shape.kv_heads * shape.head_size);
  for (int64_t i = 0; i < longest * shape.pairs; ++i) {
    in.cosine.push_back(uniform());
    in.sine.push_back(uniform());
  }
  const PageLayout layout{shape.head_size, shape.page_tokens};
  in.pages.resize(static_cast<size_t>(sequences * width * shape.kv_heads * layout.head_bytes()));
  for (uint8_t& byte : in.pages) byte = static_cast<uint8_t>(random());  // what a freed page may hold

  in.step.layout = layout;
  in.step.query_heads = shape.kv_heads * shape.group;
  in.step.kv_heads = shape.kv_heads;
  in.step.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_size));
  in.step.window = shape.window;
  in.step.softcap = shape.softcap;
  in.step.tokens = tokens;
  in.step.query = {nullptr, in.step.query_heads * shape.head_size};
  in.step.key = in.step.value = {nullptr, shape.kv_heads * shape.head_size};
  in.step.page_bytes = shape.kv_heads * layout.head_bytes();
  in.step.rotary_pairs = shape.pairs;
  in.step.table_width = width;
  return in;
}

struct Outcome {
  std::vector<uint8_t> pages;
  std::vector<float> output;  // zeros for tokens that did not attend
};

// Stores all tokens; then the fresh ones attend, as the schedule divides the work, or each task over its whole context.
Outcome run(const KernelBuild& build, const Inputs& in, bool divided) {
  Outcome out{in.pages, std::vector<float>(in.query.size())};
  Step step = in.step;
  step.query.data = in.query.data();
  step.key.data = in.key.data();
  step.value.data = in.value.data();
  step.cosine = in.cosine.data();
  step.sine = in.sine.data();
  step.positions = in.positions.data();
  step.slots = in.slots.data();
  step.block_table = in.table.data();
  step.pages = out.pages.data();
  step.output = out.output.data();
  build.store(step, 0, step.tokens);
  std::vector<Sequence> attending = in.sequences;
  for (Sequence& sequence : attending) sequence.begin = std::max(sequence.begin, sequence.end - in.shape.fresh);
  const Schedule schedule(step, attending);
  for (const AttendTask& task : schedule.tasks) {
    if (task.whole) {
      build.attend(step, task.rows);
    } else if (divided) {
      build.attend_span(step, task.rows, task.span, schedule.partials[static_cast<size_t>(task.partial)]);
    }
  }
  for (const MergeTask& task : schedule.merges) {
    if (divided) {
      build.merge_spans(step, task.rows, task.first_span, &schedule.partials[static_cast<size_t>(task.first_partial)]);
    } else {
      build.attend(step, task.rows);
    }
  }
  return out;
}

// What pages hold for a token and kv head: head_size keys, then head_size values.
std::vector<double> read_token(const Inputs& in, const std::vector<uint8_t>& pages, int64_t slot, int64_t head) {
  const PageLayout& layout = in.step.layout;
  const int64_t size = layout.head_size;
  const int64_t token = slot % layout.page_tokens;
  const uint8_t* page = pages.data() + slot / layout.page_tokens * in.step.page_bytes;
  const auto scale = [&](int64_t at) {
    float result;
    std::memcpy(&result, page + at + token * 4, sizeof(result));
    return static_cast<double>(result);
  };
  std::vector<double> found;
  for (int64_t d = 0; d < size; ++d) {
    const int64_t at = layout.key(head) + d / 4 * layout.page_tokens * 4 + token * 4 + d % 4;
    found.push_back((page[at] - 128) * scale(layout.key_scale(head)));
  }
  for (int64_t d = 0; d < size; ++d) {
    const int64_t at = layout.value(head) + token / 4 * size * 4 + d * 4 + token % 4;
    found.push_back(static_cast<int8_t>(page[at]) * scale(layout.value_scale(head)));
  }
  return found;
}

std::vector<double> rotated_query(const Inputs& in, int64_t token, int64_t head) {
  const int64_t size = in.shape.head_size;
  const float* query = in.query.data() + (token * in.step.query_heads + head) * size;
  std::vector<double> result(query, query + size);
  for (int64_t i = 0; i < in.shape.pairs; ++i) {
    const auto at = static_cast<size_t>(in.positions[static_cast<size_t>(token)] * in.shape.pairs + i);
    const double cosine = in.cosine[at];
    const double sine = in.sine[at];
    const double first = query[i];
    const double second = query[i + in.shape.pairs];
    result[static_cast<size_t>(i)] = first * cosine - second * sine;
    result[static_cast<size_t>(i + in.shape.pairs)] = second * cosine + first * sine;
  }
  return result;
}

// The largest relative error of the outputs of some of the fresh tokens.
double largest_error(const Inputs& in, const Outcome& out) {
  const auto size = static_cast<size_t>(in.shape.head_size);
  double worst = 0.0;
  for (const Sequence& sequence : in.sequences) {
    const int64_t first = std::max(sequence.begin, sequence.end - in.shape.fresh);
    for (int64_t token = first; token < sequence.end; token += std::max<int64_t>(1, in.shape.fresh / 3)) {
      for (int64_t head = 0; head < in.step.query_heads; ++head) {
        const std::vector<double> query = rotated_query(in, token, head);
        std::vector<std::vector<double>> context;
        std::vector<double> scores;
        for (int64_t t = std::max(sequence.begin, token - in.shape.window + 1); t <= token; ++t) {
          context.push_back(read_token(in, out.pages, in.slots[static_cast<size_t>(t)], head / in.shape.group));
          double score = in.step.scale * std::inner_product(query.begin(), query.end(), context.back().begin(), 0.0);
          if (in.shape.softcap > 0.0f) score = in.shape.softcap * std::tanh(score / in.shape.softcap);
          scores.push_back(score);
        }
        const double maximum = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        std::vector<double> expected(size);
        std::vector<double> magnitudes(size);
        for (size_t t = 0; t < scores.size(); ++t) {
          const double weight = std::exp(scores[t] - maximum);
          sum += weight;
          for (size_t d = 0; d < size; ++d) {
            expected[d] += weight * context[t][size + d];
            magnitudes[d] += weight * std::abs(context[t][size + d]);
          }
        }
        double error = 0.0;
        double norm = 0.0;
        const float* found = out.output.data() + static_cast<size_t>(token * in.step.query_heads + head) * size;
        for (size_t d = 0; d < size; ++d) {
          const double difference = found[d] - expected[d] / sum;
          error += difference * difference;
          norm += magnitudes[d] / sum * (magnitudes[d] / sum);
        }
        const double relative = std::sqrt(error / norm);
        worst = relative <= worst ? worst : relative;  // keeps what is not a number
      }
    }
  }
  return worst;
}

template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0;
}

// Fowler, Noll and Vo's hash of what was computed.
void add_to(uint64_t& checksum, const Outcome& out) {
  const auto add = [&](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      checksum = (checksum ^ static_cast<const unsigned char*>(data)[i]) * uint64_t{1099511628211u};
    }
  };
  add(out.pages.data(), out.pages.size());
  add(out.output.data(), out.output.size() * sizeof(float));
}

// What pages hold after tokens of the first sequence were moved to the slots of a second copy of all pages: by a distance,
// or, for none, copied as they are.
std::vector<uint8_t> moved(const KernelBuild& build, const Inputs& in, const std::vector<uint8_t>& pages,
                           int64_t distance) {
  std::vector<uint8_t> twice(pages);
  twice.insert(twice.end(), in.pages.begin(), in.pages.end());
  const auto slots = static_cast<int64_t>(pages.size()) / in.step.page_bytes * in.step.layout.page_tokens;
  std::vector<int64_t> sources, targets;
  for (int64_t token = 0; token < in.sequences.front().end; token += 3) {
    const auto at = static_cast<size_t>(token);
    sources.push_back(in.slots[at]);
    targets.push_back(2 * slots - 1 - in.slots[at]);
  }
  const float* cosine = distance == 0 ? nullptr : in.cosine.data() + distance * in.shape.pairs;
  const float* sine = in.sine.data() + distance * in.shape.pairs;
  build.move({in.step.layout, in.step.kv_heads, twice.data(), in.step.page_bytes, cosine, sine, in.shape.pairs,
              static_cast<int64_t>(sources.size()), sources.data(), targets.data()});
  return twice;
}

// Whether moved tokens are what they were, keys turned and rounded once more, and nothing else has changed.
bool moved_well(const Inputs& in, const std::vector<uint8_t>& pages, int64_t distance) {
  const std::vector<uint8_t> twice = moved(*kernel_builds().front(), in, pages, distance);
  if (!std::equal(pages.begin(), pages.end(), twice.begin())) return false;
  const auto slots = static_cast<int64_t>(pages.size()) / in.step.page_bytes * in.step.layout.page_tokens;
  const auto size = static_cast<size_t>(in.shape.head_size);
  const auto pairs = static_cast<size_t>(in.shape.pairs);
  for (int64_t token = 0; token < in.sequences.front().end; token += 3) {
    const int64_t slot = in.slots[static_cast<size_t>(token)];
    for (int64_t head = 0; head < in.step.kv_heads; ++head) {
      std::vector<double> expected = read_token(in, pages, slot, head);
      const std::vector<double> found = read_token(in, twice, 2 * slots - 1 - slot, head);
      for (size_t i = 0; i < pairs && distance != 0; ++i) {
        const size_t at = static_cast<size_t>(distance) * pairs + i;
        const double first = expected[i];
        const double second = expected[i + pairs];
        expected[i] = first * static_cast<double>(in.cosine[at]) - second * static_cast<double>(in.sine[at]);
        expected[i + pairs] = second * static_cast<double>(in.cosine[at]) + first * static_cast<double>(in.sine[at]);
      }
      double largest = 0.0;
      for (size_t d = 0; d < size; ++d) largest = std::max(largest, std::abs(expected[d]));  // of the key
      for (size_t d = 0; d < 2 * size; ++d) {
        const double allowed = d < size && distance != 0 ? 0.5001 * largest / 127.0 + 1e-6 * largest : 0.0;
        if (!(std::abs(found[d] - expected[d]) <= allowed)) return false;
      }
    }
  }
  return true;
}

bool test(const Shape& shape, uint32_t seed, uint64_t& checksum) {
  const Inputs in = make_inputs(shape, seed);
  const Outcome expected = run(*kernel_builds().front(), in, false);
  add_to(checksum, expected);
  const double error = largest_error(in, expected);
  bool good = error <= kTolerance;
  if (!good) std::printf("scalar: relative error %g\n", error);
  const int64_t farthest = *std::max_element(shape.contexts.begin(), shape.contexts.end()) - 1;
  for (const int64_t distance : {int64_t{0}, farthest}) {
    if (!moved_well(in, expected.pages, distance)) {
      std::printf("scalar: tokens moved by %d are not what they were\n", static_cast<int>(distance));
      good = false;
    }
    const std::vector<uint8_t> pages = moved(*kernel_builds().front(), in, expected.pages, distance);
    add_to(checksum, {pages, {}});
    for (const KernelBuild* build : kernel_builds()) {
      if (!same_bits(moved(*build, in, expected.pages, distance), pages)) {
        std::printf("%s: moved to other bits than scalar\n", build->name);
        good = false;
      }
    }
  }
  for (const KernelBuild* build : kernel_builds()) {
    for (const bool divided : {false, true}) {
      const Outcome out = run(*build, in, divided);
      const bool same = same_bits(out.pages, expected.pages) && same_bits(out.output, expected.output);
      if (!same) std::printf("%s%s: other bits than scalar\n", build->name, divided ? ", divided" : "");
      good = good && same;
    }
  }
  if (!good) {
    std::printf("  kv heads %d, group %d, head size %d, pairs %d, page tokens %d, window %d, softcap %g, seed %u\n",
                static_cast<int>(shape.kv_heads), static_cast<int>(shape.group), static_cast<int>(shape.head_size),
                static_cast<int>(shape.pairs), static_cast<int>(shape.page_tokens),
                static_cast<int>(shape.window), static_cast<double>(shape.softcap), seed);
  }
  return good;
}

}  // namespace
}  // namespace edge_rag

int main(int argc, char** argv) {
  using namespace edge_rag;
  const int cases = argc > 1 ? std::atoi(argv[1]) : 40;
  std::mt19937 random(20);
  const auto one_of = [&](std::initializer_list<int64_t> values) { return values.begin()[random() % values.size()]; };
  uint64_t checksum = 14695981039346656037u;
  for (int i = 0; i < cases; ++i) {
    Shape shape{};
    shape.kv_heads = one_of({1, 2});
    shape.group = one_of({1, 2, 3, 7, 8, 20});
    shape.head_size = one_of({8, 24, 40, 64, 64, 80, 96, 128, 256});
    shape.pairs = one_of({shape.head_size / 2, shape.head_size / 4, 0});
    shape.page_tokens = one_of({16, 32, 64});
    shape.fresh = one_of({1, 1, 5, 40});
    shape.window = one_of({kNoWindow, kNoWindow, 1, 30, 128, 520});
    shape.softcap = static_cast<float>(one_of({0, 0, 2, 50}));
    const auto longest = static_cast<uint32_t>(one_of({1, 40, 200, 700, 1100}));
    for (int64_t s = one_of({1, 3}); s > 0; --s) shape.contexts.push_back(1 + static_cast<int64_t>(random() % longest));
    if (!test(shape, static_cast<uint32_t>(i), checksum)) return 1;
  }
  if (!test({1, 7, 64, 32, 32, {4096}, 2, kNoWindow, 0.0f}, 4096, checksum)) return 1;
  if (!test({1, 7, 64, 32, 32, {4096}, 200, 600, 0.0f}, 4097, checksum)) return 1;
  std::printf("%016llx", static_cast<unsigned long long>(checksum));
  for (const KernelBuild* build : kernel_builds()) std::printf(" %s", build->name);
  std::printf("\n");
  return 0;
}
