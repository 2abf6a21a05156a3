"""Embedders and cross-encoders."""
