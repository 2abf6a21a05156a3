// Tokens copied between slots of pages, their keys turned on to a later position.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "store.h"

namespace edge_rag {
namespace {

// What the bytes of a key stand for, before a Hadamard transform.
template <class V>
EDGE_RAG_INLINE void read_key_values(const Slot& from, const uint8_t* bytes, float scale, float* values) {
  const int64_t size = from.layout.head_size;
  if (!from.layout.nibbles()) {
    for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(bytes[i] - kKeyBias) * scale;
    return;
  }
  for (int64_t i = 0; i < size; ++i) {
    const uint8_t byte = bytes[i / (2 * kQuad) * kQuad + i % kQuad];
    const int index = i % (2 * kQuad) < kQuad ? byte & 15 : byte >> 4;
    values[i] = static_cast<float>(kValueLevels[index]) * scale;
  }
  hadamard_transform<V>(values, size);
}

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
    const auto scale_bytes = static_cast<size_t>(layout.bits / 2);
    for (int64_t i = 0; i < source.key_bytes(); ++i) target.value()[i * kQuad] = source.value()[i * kQuad];
    std::memcpy(target.value_scale(), source.value_scale(), scale_bytes);

    read_key(source, bytes);
    if (move.cosine == nullptr) {
      write_key(target, bytes);
      std::memcpy(target.key_scale(), source.key_scale(), scale_bytes);
    } else {
      read_key_values<V>(source, bytes, read_scale(layout, source.key_scale()), values);
      turn<V>(values, layout.head_size, move.rotary_pairs, move.cosine, move.sine, turned);
      write_scale(layout, store_key<V>(turned, target).scale, target.key_scale());
    }
  }
}

template <class V>
void move_tokens(const Move& move) {
  for (int64_t i = 0; i < move.tokens; ++i) move_token<V>(move, move.sources[i], move.targets[i]);
}

}  // namespace
}  // namespace edge_rag
