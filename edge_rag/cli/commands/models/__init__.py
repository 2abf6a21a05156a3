"""``edge-rag models``: recommend, add, list, choose and verify models."""
