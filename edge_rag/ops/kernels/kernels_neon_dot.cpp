#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_neon_dot.h"

namespace edge_rag {

extern const KernelBuild kNeonDotBuild;
const KernelBuild kNeonDotBuild =
    make_build<NeonDotVectors>("neon_dot", make_quantized_kernels<NeonDotVectors>(),
                               make_encoder_kernels<NeonDotVectors>());

}  // namespace edge_rag
