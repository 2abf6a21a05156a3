"""Pages of the KV cache on disk: what was evicted and is asked for often, for when it is asked for again."""
