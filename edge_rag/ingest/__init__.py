"""From uploaded bytes to stored, embedded chunks."""
