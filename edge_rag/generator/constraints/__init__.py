"""Constraints on generated tokens: quotes of the passages, and grammars."""
