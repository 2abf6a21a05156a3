"""Attributes generated text to passages."""
