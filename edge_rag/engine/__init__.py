"""The generation engine: continuous batching, scheduling, the paged KV cache and sampling."""
