"""Reads and checks model folders, which are hostile until checked."""
