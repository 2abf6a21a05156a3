#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_avx2.h"

namespace edge_rag {

extern const KernelBuild kAvx2Build;
const KernelBuild kAvx2Build =
    make_build<Avx2Vectors>("avx2", make_quantized_kernels<Avx2Vectors>(), make_encoder_kernels<Avx2Vectors>());

}  // namespace edge_rag
