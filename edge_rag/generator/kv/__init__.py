"""Page accounting: who holds which page of the KV cache. Integers only; the bytes are the model runner's."""
