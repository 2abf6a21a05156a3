#include "attend.h"
#include "encode.h"
#include "quantized_multiply.h"
#include "vectors_neon_i8mm.h"

namespace edge_rag {

extern const KernelBuild kNeonDotBuild;
extern const KernelBuild kNeonI8mmBuild;

namespace {

// A matrix instruction multiplies two rows; of one alone, half of what it makes would be of no use.
constexpr QuantizedKernels kOneOrMoreRows{
    [](const float* in, const QuantizedMatrix& matrix, int64_t begin, int64_t end, const Activations& out) {
      const auto quantize = out.rows == 1 ? kNeonDotBuild.quantized.quantize : quantize_activations<NeonI8mmVectors>;
      quantize(in, matrix, begin, end, out);
    },
    [](const Activations& activations, const QuantizedMatrix& matrix, const ProductPart& part,
       const ProductOutput& out) {
      const auto of_rows = activations.rows == 1 ? kNeonDotBuild.quantized.multiply : multiply<NeonI8mmVectors>;
      of_rows(activations, matrix, part, out);
    }};

}  // namespace

const KernelBuild kNeonI8mmBuild =
    make_build<NeonI8mmVectors>("neon_i8mm", kOneOrMoreRows, make_encoder_kernels<NeonI8mmVectors>());

}  // namespace edge_rag
