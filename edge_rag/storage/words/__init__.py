"""The words of collections: the entries of a chunk in the full text index, and all words as they are written."""
