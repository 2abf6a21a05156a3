"""Prompt layout and tokenization."""
