#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_scalar.h"

namespace edge_rag {

extern const KernelBuild kScalarBuild;
const KernelBuild kScalarBuild =
    make_build<ScalarVectors>("scalar", make_quantized_kernels<ScalarVectors>(), make_encoder_kernels<ScalarVectors>());

}  // namespace edge_rag
