"""Embedding and reranking on remote machines."""
