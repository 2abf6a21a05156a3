"""Reads and checks model folders, which are untrusted until checked."""
