"""Extracted answers: the fields of a JSON schema filled with values that the passages hold."""
