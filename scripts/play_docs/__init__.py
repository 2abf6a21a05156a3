"""Plays the documentation: every command as written, on two machines of a network."""
