#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_avx_vnni.h"

namespace edge_rag {

extern const KernelBuild kAvxVnniBuild;
const KernelBuild kAvxVnniBuild =
    make_build<AvxVnniVectors>("avx_vnni", make_quantized_kernels<AvxVnniVectors>(),
                               make_encoder_kernels<AvxVnniVectors>());

}  // namespace edge_rag
