#pragma once

#include <cstdint>

#include "step.h"

namespace edge_rag {

// Attention of a tile's tokens, for the query heads that share one kv head, over their sequence's pages; writes their
// rows of step.output. A token at position p sees positions 0 to p.
void attend_tile(const Step& step, const QueryTile& tile, int64_t kv_head);

}  // namespace edge_rag
