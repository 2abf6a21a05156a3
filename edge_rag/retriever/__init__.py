"""Hybrid search: FAISS and BM25, fused, deduplicated, and grouped into passages."""
