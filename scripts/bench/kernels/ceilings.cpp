// What this machine can do at most: bytes read from memory, and products of bytes summed, by all threads together.
// Usage: ceilings THREADS. Prints both per second, as the best of several tries.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

constexpr int kTries = 25;
constexpr size_t kBytes = size_t{128} << 20;  // a thread's, larger than any cache of its own
constexpr int kTurns = 200000;
constexpr int kSums = 16;

std::atomic<uint64_t> used{0};  // so that no result is thrown away

uint64_t read_memory(const std::vector<uint64_t>& data) {
  uint64_t sums[16] = {};
  for (size_t i = 0; i + 16 <= data.size(); i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] ^= data[i + j];
  }
  uint64_t all = 0;
  for (uint64_t sum : sums) all ^= sum;
  return all;
}

// Returns the products that were summed.
double sum_products() {
#if defined(__AVX512VNNI__)
  __m512i sums[kSums];
  const __m512i x = _mm512_set1_epi32(0x01020304);
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_si512();
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) asm volatile("vpdpbusd %1, %1, %0" : "+v"(sums[i]) : "v"(x));
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) used += static_cast<uint64_t>(_mm512_reduce_add_epi32(sums[i]));
  return 64.0 * kSums * kTurns;
#elif defined(__AVX2__)
  __m256i sums[kSums / 2];
  __m256i x = _mm256_set1_epi16(3);
#pragma GCC unroll 8
  for (int i = 0; i < kSums / 2; ++i) sums[i] = _mm256_setzero_si256();
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 8
    for (int i = 0; i < kSums / 2; ++i) {
      asm volatile("" : "+x"(x));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(x, x));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kSums / 2; ++i) used += static_cast<uint64_t>(_mm256_extract_epi32(sums[i], 0));
  return 16.0 * (kSums / 2) * kTurns;
#elif defined(__ARM_FEATURE_DOTPROD)
  int32x4_t sums[kSums];
  const int8x16_t x = vdupq_n_s8(3);
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = vdupq_n_s32(0);
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) asm volatile("sdot %0.4s, %1.16b, %1.16b" : "+w"(sums[i]) : "w"(x));
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) used += static_cast<uint64_t>(vaddvq_s32(sums[i]));
  return 16.0 * kSums * kTurns;
#else
#error "no loop for this processor"
#endif
}

double seconds_of(unsigned threads, const std::function<void(unsigned)>& work) {
  std::atomic<unsigned> waiting{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      ++waiting;
      while (!go) {
      }
      work(i);
    });
  }
  while (waiting != threads) {
  }
  const auto begin = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : all) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1;
  const std::vector<std::vector<uint64_t>> data(threads, std::vector<uint64_t>(kBytes / sizeof(uint64_t), 1));
  double bytes = 0.0;
  double products = 0.0;
  for (int i = 0; i < kTries; ++i) {
    const double reading = seconds_of(threads, [&](unsigned thread) { used += read_memory(data[thread]); });
    bytes = std::max(bytes, static_cast<double>(kBytes) * threads / reading);
    std::atomic<double> done{0.0};
    const double computing = seconds_of(threads, [&](unsigned) { done = sum_products(); });
    products = std::max(products, done * threads / computing);
  }
  std::printf("%.6g %.6g\n", bytes, products);
  return 0;
}
