// Tokens copied between slots of pages, their keys turned on to a later position.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "quantize.h"

namespace edge_rag {
namespace {

// A key is stored turned by the angles of its position; turning it on by those of the distance gives what it would be at
// the other one. It is rounded once more. Everything else is copied.
template <class V>
void move_token(const Move& move, int64_t from, int64_t to) {
  const PageLayout& layout = move.layout;
  const int64_t size = layout.head_size;
  const int64_t page_tokens = layout.page_tokens;
  const int64_t source = from % page_tokens;
  const int64_t target = to % page_tokens;
  const uint8_t* source_page = move.pages + from / page_tokens * move.page_bytes;
  uint8_t* target_page = move.pages + to / page_tokens * move.page_bytes;
  alignas(64) uint8_t bytes[kMaxHeadSize];
  alignas(64) float values[kMaxHeadSize];
  alignas(64) float turned[kMaxHeadSize];

  for (int64_t head = 0; head < move.kv_heads; ++head) {
    const uint8_t* value = source_page + layout.value(head) + source / kQuad * kQuad * size + source % kQuad;
    uint8_t* moved_value = target_page + layout.value(head) + target / kQuad * kQuad * size + target % kQuad;
    for (int64_t i = 0; i < size; ++i) moved_value[i * kQuad] = value[i * kQuad];
    std::memcpy(target_page + layout.value_scale(head) + target * sizeof(float),
                source_page + layout.value_scale(head) + source * sizeof(float), sizeof(float));

    const uint8_t* key = source_page + layout.key(head) + source * kQuad;
    for (int64_t i = 0; i < size; i += kQuad) std::memcpy(bytes + i, key + i * page_tokens, kQuad);
    float scale;
    std::memcpy(&scale, source_page + layout.key_scale(head) + source * sizeof(float), sizeof(float));
    if (move.cosine != nullptr) {
      for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(bytes[i] - kKeyBias) * scale;
      turn<V>(values, size, move.rotary_pairs, move.cosine, move.sine, turned);
      const Quantization how = quantization<V>(turned, size, 127.0f);
      quantize_bytes<V>(turned, size, how, kKeyBias, bytes);
      scale = how.scale;
    }
    uint8_t* moved_key = target_page + layout.key(head) + target * kQuad;
    for (int64_t i = 0; i < size; i += kQuad) std::memcpy(moved_key + i * page_tokens, bytes + i, kQuad);
    std::memcpy(target_page + layout.key_scale(head) + target * sizeof(float), &scale, sizeof(float));
  }
}

template <class V>
void move_tokens(const Move& move) {
  for (int64_t i = 0; i < move.tokens; ++i) move_token<V>(move, move.sources[i], move.targets[i]);
}

}  // namespace
}  // namespace edge_rag
