"""Reranks passages and rates their sentences."""
