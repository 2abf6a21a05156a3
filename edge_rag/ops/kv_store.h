#pragma once

#include <cstdint>

#include "step.h"

namespace edge_rag {

// Rotates token's queries into step.rotated and writes its rotated, quantized keys and its quantized values to its slot.
void store_token(Step& step, int64_t token);

}  // namespace edge_rag
