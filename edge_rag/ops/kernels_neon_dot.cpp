#include "attend.h"
#include "vectors_neon_dot.h"

namespace edge_rag {

extern const KernelBuild kNeonDotBuild;
const KernelBuild kNeonDotBuild = make_build<NeonDotVectors>("neon_dot");

}  // namespace edge_rag
