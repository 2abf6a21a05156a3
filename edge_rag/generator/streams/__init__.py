"""Turns generated tokens into text, citations and usage."""
