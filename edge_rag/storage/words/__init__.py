"""The words of collections: what the full text index holds of a chunk, and all words as they are written."""
