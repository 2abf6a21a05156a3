"""The paged KV cache: accounting, prefix index, copied passages, disk tier. The model runner owns the bytes."""
