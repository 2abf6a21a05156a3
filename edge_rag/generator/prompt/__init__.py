"""Prompt rendering and tokenization."""
