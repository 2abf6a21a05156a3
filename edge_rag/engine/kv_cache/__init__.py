"""Page accounting of the KV cache. Integers only; the model runner owns the bytes."""
