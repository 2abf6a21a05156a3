#include "kernels.h"

#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "ort_tensor.h"

namespace edge_rag {

extern const KernelBuild kScalarBuild;
#if defined(__x86_64__)
extern const KernelBuild kAvx2Build;
extern const KernelBuild kAvxVnniBuild;
extern const KernelBuild kAvx512Build;
extern const KernelBuild kAvx512VnniBuild;
#elif defined(__aarch64__)
extern const KernelBuild kNeonDotBuild;
extern const KernelBuild kNeonI8mmBuild;
#endif

namespace {

#if defined(__x86_64__)
// Asked of the processor itself: compilers have no common name for it.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}
#endif

std::vector<const KernelBuild*> builds_that_run_here() {
  std::vector<const KernelBuild*> builds{&kScalarBuild};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    builds.push_back(&kAvx2Build);
    if (has_avx_vnni()) builds.push_back(&kAvxVnniBuild);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    builds.push_back(&kAvx512Build);
    if (__builtin_cpu_supports("avx512vnni")) builds.push_back(&kAvx512VnniBuild);
  }
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) {
    builds.push_back(&kNeonDotBuild);
    if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) builds.push_back(&kNeonI8mmBuild);
  }
#endif
  return builds;
}

}  // namespace

const std::vector<const KernelBuild*>& kernel_builds() {
  static const std::vector<const KernelBuild*> builds = builds_that_run_here();
  return builds;
}

const KernelBuild& choose_kernel_build() {
  const char* wanted = std::getenv("EDGE_RAG_OPS_BUILD");
  if (wanted == nullptr || *wanted == '\0') return *kernel_builds().back();
  std::string names;
  for (const KernelBuild* build : kernel_builds()) {
    if (std::string(wanted) == build->name) return *build;
    names += std::string(names.empty() ? "" : ", ") + build->name;
  }
  throw InvalidInput("EDGE_RAG_OPS_BUILD is " + std::string(wanted) + "; this machine can run " + names);
}

}  // namespace edge_rag
