#include "attend.h"
#include "vectors_scalar.h"

namespace edge_rag {

extern const KernelBuild kScalarBuild;
const KernelBuild kScalarBuild = make_build<ScalarVectors>("scalar");

}  // namespace edge_rag
