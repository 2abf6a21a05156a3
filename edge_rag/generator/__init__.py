"""The engine: scheduling, KV pages, sampling, grounding."""
