// Keys and values of tokens, quantized into the slots of pages.
#pragma once

#include <cstdint>
#include <cstring>

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
  // Every fourth byte from here on is the value's.
  EDGE_RAG_INLINE uint8_t* value() const {
    return page + layout.value(head) + offset / kQuad * kQuad * layout.head_size + offset % kQuad;
  }
  EDGE_RAG_INLINE uint8_t* key_scale() const { return page + layout.key_scale(head) + offset * sizeof(float); }
  EDGE_RAG_INLINE uint8_t* value_scale() const { return page + layout.value_scale(head) + offset * sizeof(float); }
};

// Bytes [0, head_size) of a key or value, out of a page and into it.
EDGE_RAG_INLINE void read_key(const Slot& from, uint8_t* bytes) {
  const uint8_t* key = from.key();
  for (int64_t i = 0; i < from.layout.head_size; i += kQuad, key += from.stride()) std::memcpy(bytes + i, key, kQuad);
}
EDGE_RAG_INLINE void write_key(const Slot& to, const uint8_t* bytes) {
  uint8_t* key = to.key();
  for (int64_t i = 0; i < to.layout.head_size; i += kQuad, key += to.stride()) std::memcpy(key, bytes + i, kQuad);
}
EDGE_RAG_INLINE void write_value(const Slot& to, const uint8_t* bytes) {
  uint8_t* value = to.value();
  for (int64_t i = 0; i < to.layout.head_size; ++i) value[i * kQuad] = bytes[i];
}

EDGE_RAG_INLINE float read_scale(const uint8_t* from) {
  float scale;
  std::memcpy(&scale, from, sizeof(scale));
  return scale;
}
EDGE_RAG_INLINE void write_scale(float scale, uint8_t* to) { std::memcpy(to, &scale, sizeof(scale)); }

// Quantizes a head, filled up with zeros to a whole number of vectors, to the bytes that a page holds of it.
template <class V>
EDGE_RAG_INLINE Quantization quantize_head(const float* values, int64_t size, int32_t bias, uint8_t* bytes) {
  const Quantization how = quantization<V>(values, size, 127.0f);
  quantize_bytes<V>(values, size, how, bias, bytes);
  return how;
}

// Stores a key that is turned to its position; returns how it was quantized.
template <class V>
EDGE_RAG_INLINE Quantization store_key(const float* values, const Slot& to) {
  alignas(64) uint8_t bytes[kMaxHeadSize];
  const Quantization how = quantize_head<V>(values, to.layout.head_size, kKeyBias, bytes);
  write_key(to, bytes);
  return how;
}

template <class V>
EDGE_RAG_INLINE Quantization store_value(const float* values, const Slot& to) {
  alignas(64) uint8_t bytes[kMaxHeadSize];
  const Quantization how = quantize_head<V>(values, to.layout.head_size, 0, bytes);
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
  write_scale(key.finite && !value.finite ? value.scale : key.scale, slot.key_scale());
  write_scale(value.scale, slot.value_scale());
}

template <class V>
void store_tokens(const Step& step, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t head = 0; head < step.kv_heads; ++head) store_head<V>(step, token, head);
  }
}

}  // namespace
}  // namespace edge_rag
