#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_avx512_vnni.h"

namespace edge_rag {

extern const KernelBuild kAvx512VnniBuild;
const KernelBuild kAvx512VnniBuild =
    make_build<Avx512VnniVectors>("avx512_vnni", make_quantized_kernels<Avx512VnniVectors>(),
                                  make_encoder_kernels<Avx512VnniVectors>());

}  // namespace edge_rag
