// What the runtime calls beside the graph's ops: one layer's tokens copied to other positions.
#include <cstdint>

#include "kernels.h"
#include "page_layout.h"

// Copies tokens between slots of one layer's pages; see Move. The caller has checked everything but the sizes.
// Returns 0, or 1 where a page of these sizes cannot be; then nothing was copied.
extern "C" __attribute__((visibility("default"))) int edge_rag_move_tokens(
    uint8_t* pages, int64_t kv_heads, int64_t head_size, int64_t page_tokens, int64_t rotary_pairs,
    const float* cosine, const float* sine, int64_t tokens, const int64_t* sources, const int64_t* targets) {
  using namespace edge_rag;
  const bool pages_can_be = head_size > 0 && head_size % kHeadSizeStep == 0 && head_size <= kMaxHeadSize &&
                            page_tokens > 0 && page_tokens % kLanes == 0 && page_tokens <= kMaxPageTokens;
  if (!pages_can_be || kv_heads < 1 || rotary_pairs < 0 || 2 * rotary_pairs > head_size) return 1;
  // The variable that names a build was read, and found good, when the model's session was opened.
  static const KernelBuild& build = choose_kernel_build();
  const PageLayout layout{head_size, page_tokens};
  build.move({layout, kv_heads, pages, kv_heads * layout.head_bytes(), cosine, sine, rotary_pairs, tokens, sources, targets});
  return 0;
}
