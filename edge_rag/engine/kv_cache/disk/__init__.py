"""Evicted KV pages on disk, for prefixes that are requested often."""
