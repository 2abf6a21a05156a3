"""Rewrites exported graphs for paged attention and packed weights."""
