"""The paged KV cache: accounting, prefix index, copied passages. The model runner owns the bytes."""
