"""Speculative decoding: draft tokens, what a step costs, and verification."""
