"""Embedding the passages of documents on remote machines."""
