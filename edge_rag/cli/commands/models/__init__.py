"""Commands of models."""
