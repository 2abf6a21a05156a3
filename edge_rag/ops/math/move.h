// Tokens copied between slots of pages, their keys turned on to a later position.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "store.h"

namespace edge_rag {
namespace {

// A key is stored turned by the angles of its position; turning it on by those of the distance gives what it would be at
// the other one. It is rounded once more. Everything else is copied.
template <class V>
void move_token(const Move& move, int64_t from, int64_t to) {
  const PageLayout& layout = move.layout;
  alignas(64) uint8_t bytes[kMaxHeadSize];
  alignas(64) float values[kMaxHeadSize];
  alignas(64) float turned[kMaxHeadSize];

  for (int64_t head = 0; head < move.kv_heads; ++head) {
    const Slot source(layout, move.pages, move.page_bytes, from, head);
    const Slot target(layout, move.pages, move.page_bytes, to, head);
    for (int64_t i = 0; i < layout.head_size; ++i) target.value()[i * kQuad] = source.value()[i * kQuad];
    std::memcpy(target.value_scale(), source.value_scale(), sizeof(float));

    read_key(source, bytes);
    if (move.cosine == nullptr) {
      write_key(target, bytes);
      std::memcpy(target.key_scale(), source.key_scale(), sizeof(float));
    } else {
      const float scale = read_scale(source.key_scale());
      for (int64_t i = 0; i < layout.head_size; ++i) values[i] = static_cast<float>(bytes[i] - kKeyBias) * scale;
      turn<V>(values, layout.head_size, move.rotary_pairs, move.cosine, move.sine, turned);
      write_scale(store_key<V>(turned, target).scale, target.key_scale());
    }
  }
}

template <class V>
void move_tokens(const Move& move) {
  for (int64_t i = 0; i < move.tokens; ++i) move_token<V>(move, move.sources[i], move.targets[i]);
}

}  // namespace
}  // namespace edge_rag
