// Rotary embedding and the INT8 store. Compiled without contraction of products and sums, so that every build of the
// library writes the same bytes into a page.
#include "kv_store.h"

#include <cmath>
#include <cstring>

namespace edge_rag {
namespace {

// Below this a row is stored as zeros: its reciprocal would not be finite.
constexpr float kSmallestMagnitude = 1e-30f;

// Su et al., RoFormer, 2021, in the half-split form: pair (i, i + pairs) is turned by the angle of its position.
void rotate(const float* in, const float* cosine, const float* sine, int64_t pairs, int64_t size, float* out) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float first = in[i];
    const float second = in[i + pairs];
    out[i] = first * cosine[i] - second * sine[i];
    out[i + pairs] = second * cosine[i] + first * sine[i];
  }
  for (int64_t i = 2 * pairs; i < size; ++i) out[i] = in[i];
}

// Symmetric INT8: scale = max|x| / 127. A row that is not finite is stored with a NaN scale, so that what is made of it
// is NaN too and cannot be mistaken for a result.
float quantize(const float* in, int64_t size, int8_t* out, int64_t stride) {
  float magnitude = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < size; ++i) {
    const float absolute = std::fabs(in[i]);
    finite = finite && std::isfinite(absolute);
    magnitude = absolute > magnitude ? absolute : magnitude;
  }
  const bool zero = !finite || magnitude < kSmallestMagnitude;
  const float inverse = zero ? 0.0f : 127.0f / magnitude;
  for (int64_t i = 0; i < size; ++i) {
    out[i * stride] = zero ? int8_t{0} : static_cast<int8_t>(std::nearbyint(in[i] * inverse));
  }
  if (!finite) return std::nanf("");
  return zero ? 0.0f : magnitude / 127.0f;
}

}  // namespace

void store_token(Step& step, int64_t token) {
  const PageLayout& layout = step.layout;
  const int64_t size = layout.head_size;
  const int64_t position = step.positions[token];
  const float* cosine = step.cosine + position * step.rotary_pairs;
  const float* sine = step.sine + position * step.rotary_pairs;

  for (int64_t head = 0; head < step.query_heads; ++head) {
    const float* in = step.query.data + token * step.query.token_stride + head * size;
    float* out = step.rotated.data() + (token * step.query_heads + head) * size;
    rotate(in, cosine, sine, step.rotary_pairs, size, out);
    for (int64_t i = 0; i < size; ++i) out[i] *= step.scale;
  }

  const int64_t slot = step.slots[token];
  const int64_t offset = slot % layout.page_tokens;
  int8_t* page = step.pages + slot / layout.page_tokens * step.page_bytes;
  float rotated_key[kMaxHeadSize];
  for (int64_t head = 0; head < step.kv_heads; ++head) {
    const float* key = step.key.data + token * step.key.token_stride + head * size;
    rotate(key, cosine, sine, step.rotary_pairs, size, rotated_key);
    const float key_scale = quantize(rotated_key, size, page + layout.key(head) + offset, layout.page_tokens);
    std::memcpy(page + layout.key_scale(head) + offset * sizeof(float), &key_scale, sizeof(float));

    const float* value = step.value.data + token * step.value.token_stride + head * size;
    const float value_scale = quantize(value, size, page + layout.value(head) + offset * size, 1);
    std::memcpy(page + layout.value_scale(head) + offset * sizeof(float), &value_scale, sizeof(float));
  }
}

}  // namespace edge_rag
