// Keys and values of tokens, quantized into the slots of pages.
#pragma once

#include <cstdint>
#include <cstring>

#include "codebook.h"
#include "half.h"
#include "kernels.h"
#include "quantize.h"

namespace edge_rag {
namespace {

// One token's place in a page, for one kv head.
struct Slot {
  PageLayout layout;
  uint8_t* page;
  int64_t head;
  int64_t offset;

  EDGE_RAG_INLINE Slot(const PageLayout& of, uint8_t* pages, int64_t page_bytes, int64_t slot, int64_t of_head)
      : layout(of), page(pages + slot / of.page_tokens * page_bytes), head(of_head), offset(slot % of.page_tokens) {}

  // Every stride()-th 4 bytes from here on are the key's.
  EDGE_RAG_INLINE uint8_t* key() const { return page + layout.key(head) + offset * kQuad; }
  EDGE_RAG_INLINE int64_t stride() const { return layout.page_tokens * kQuad; }
  EDGE_RAG_INLINE int64_t key_bytes() const { return layout.head_size * layout.bits / 8; }
  // Every fourth byte from here on is the value's.
  EDGE_RAG_INLINE uint8_t* value() const {
    return page + layout.value(head) + offset / kQuad * kQuad * key_bytes() + offset % kQuad;
  }
  EDGE_RAG_INLINE uint8_t* key_scale() const { return page + layout.key_scale(head) + offset * layout.bits / 2; }
  EDGE_RAG_INLINE uint8_t* value_scale() const { return page + layout.value_scale(head) + offset * layout.bits / 2; }
};

// Bytes [0, key_bytes()) of a key or value, out of a page and into it.
EDGE_RAG_INLINE void read_key(const Slot& from, uint8_t* bytes) {
  const uint8_t* key = from.key();
  for (int64_t i = 0; i < from.key_bytes(); i += kQuad, key += from.stride()) std::memcpy(bytes + i, key, kQuad);
}
EDGE_RAG_INLINE void write_key(const Slot& to, const uint8_t* bytes) {
  uint8_t* key = to.key();
  for (int64_t i = 0; i < to.key_bytes(); i += kQuad, key += to.stride()) std::memcpy(key, bytes + i, kQuad);
}
EDGE_RAG_INLINE void write_value(const Slot& to, const uint8_t* bytes) {
  uint8_t* value = to.value();
  for (int64_t i = 0; i < to.key_bytes(); ++i) value[i * kQuad] = bytes[i];
}

EDGE_RAG_INLINE float read_scale(const PageLayout& layout, const uint8_t* from) {
  if (layout.nibbles()) {
    uint16_t half;
    std::memcpy(&half, from, sizeof(half));
    return half_to_float(half);
  }
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  return scale;
}
EDGE_RAG_INLINE void write_scale(const PageLayout& layout, float scale, uint8_t* to) {
  if (layout.nibbles()) {
    const uint16_t half = float_to_half(scale);
    std::memcpy(to, &half, sizeof(half));
  } else {
    std::memcpy(to, &scale, sizeof(scale));
  }
}

// Two nibbles a byte: of each 2 * apart elements, the first half in the low ones.
EDGE_RAG_INLINE void join_nibbles(const uint8_t* indices, int64_t size, int64_t apart, uint8_t* out) {
  for (int64_t first = 0; first < size; first += 2 * apart) {
    for (int64_t i = first; i < first + apart; ++i) *out++ = static_cast<uint8_t>(indices[i] | indices[i + apart] << 4);
  }
}

// Quantizes a head, filled up with zeros to a whole number of vectors, to the bytes that a page holds of it. Of two nibbles
// in a byte the second is so many elements further on; without nibbles, bytes have the bias.
template <class V>
EDGE_RAG_INLINE Quantization quantize_head(const PageLayout& layout, float* values, int64_t apart, int32_t bias,
                                           uint8_t* bytes) {
  if (!layout.nibbles()) {
    const Quantization how = quantization<V>(values, layout.head_size, 127.0f);
    quantize_bytes<V>(values, layout.head_size, how, bias, bytes);
    return how;
  }
  alignas(64) uint8_t indices[kMaxHeadSize];
  hadamard_transform<V>(values, layout.head_size);
  const Quantization how = code_head<V>(values, layout.head_size, indices);
  join_nibbles(indices, layout.head_size, apart, bytes);
  return how;
}

// Stores a key that is turned to its position; returns how it was quantized.
template <class V>
EDGE_RAG_INLINE Quantization store_key(float* values, const Slot& to) {
  alignas(64) uint8_t bytes[kMaxHeadSize];
  const Quantization how = quantize_head<V>(to.layout, values, kQuad, kKeyBias, bytes);
  write_key(to, bytes);
  return how;
}

template <class V>
EDGE_RAG_INLINE Quantization store_value(float* values, const Slot& to) {
  alignas(64) uint8_t bytes[kMaxHeadSize];
  const Quantization how = quantize_head<V>(to.layout, values, kLanes, 0, bytes);
  write_value(to, bytes);
  return how;
}

template <class V>
void store_head(const Step& step, int64_t token, int64_t head) {
  const int64_t size = step.layout.head_size;
  const Slot slot(step.layout, step.pages, step.page_bytes, step.slots[token], head);
  alignas(64) float values[kMaxHeadSize];

  rotate<V>(step.key.data + token * step.key.token_stride + head * size, step, step.positions[token], values);
  const Quantization key = store_key<V>(values, slot);
  copy_padded(step.value.data + token * step.value.token_stride + head * size, size, values);
  const Quantization value = store_value<V>(values, slot);

  // A value that is not finite makes its key so: then every score, and with it every output, that it takes part in.
  write_scale(step.layout, key.finite && !value.finite ? value.scale : key.scale, slot.key_scale());
  write_scale(step.layout, value.scale, slot.value_scale());
}

template <class V>
void store_tokens(const Step& step, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t head = 0; head < step.kv_heads; ++head) store_head<V>(step, token, head);
  }
}

}  // namespace
}  // namespace edge_rag
