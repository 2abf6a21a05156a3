#include "attend.h"
#include "vectors_avx512.h"

namespace edge_rag {

extern const KernelBuild kAvx512Build;
const KernelBuild kAvx512Build = make_build<Avx512Vectors>("avx512");

}  // namespace edge_rag
