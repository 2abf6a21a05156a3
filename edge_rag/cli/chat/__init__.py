"""A conversation at the terminal, or over standard input."""
