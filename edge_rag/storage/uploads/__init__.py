"""Files that are sent in one step, in pieces or whole, and become documents in another."""
