#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_avx512.h"

namespace edge_rag {

extern const KernelBuild kAvx512Build;
const KernelBuild kAvx512Build =
    make_build<Avx512Vectors>("avx512", make_quantized_kernels<Avx512Vectors>(), make_encoder_kernels<Avx512Vectors>());

}  // namespace edge_rag
