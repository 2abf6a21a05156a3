"""Values that describe the state of a running daemon."""
