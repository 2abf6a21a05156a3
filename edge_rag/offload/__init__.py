"""Answers written by other machines: where to compute, what may leave, and going on alone when they fail."""
