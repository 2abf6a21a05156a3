// The few calls of ik_llama.cpp that run_ik_llama.py needs, with plain arguments: the structs of its header grow with
// every week, so that only a compiler knows their layout.
#include <algorithm>
#include <cstdint>

#include "llama.h"

extern "C" {

llama_model* ik_open(const char* path) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  return llama_model_load_from_file(path, llama_model_default_params());
}

int32_t ik_vocabulary(const llama_model* model) { return llama_n_vocab(model); }

llama_context* ik_context(llama_model* model, uint32_t threads, uint32_t tokens, uint32_t sequences, uint32_t batch,
                          bool eight_bits) {
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = tokens;
  parameters.n_batch = batch;
  parameters.n_seq_max = sequences;
  parameters.n_threads = parameters.n_threads_batch = threads;
  parameters.type_k = parameters.type_v = eight_bits ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
  parameters.flash_attn = true;
  return llama_init_from_model(model, parameters);
}

// All arrays have `count` elements; returns 0 unless it failed.
int32_t ik_compute(llama_context* context, int32_t count, const int32_t* tokens, const int32_t* positions,
                   const int32_t* sequences, const int8_t* wanted) {
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  std::copy_n(tokens, count, batch.token);
  std::copy_n(positions, count, batch.pos);
  std::copy_n(wanted, count, batch.logits);
  for (int32_t i = 0; i < count; ++i) {
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequences[i];
  }
  const int32_t status = llama_decode(context, batch);
  llama_synchronize(context);
  llama_batch_free(batch);
  return status;
}

const float* ik_logits(llama_context* context, int32_t row) { return llama_get_logits_ith(context, row); }

void ik_close(llama_context* context) { llama_free(context); }
}
