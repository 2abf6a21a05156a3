"""Commands that bring documents in, list them, and back them up."""
