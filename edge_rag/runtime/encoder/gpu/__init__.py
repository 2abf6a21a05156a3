"""Encoders for GPUs: padded batches, in operators that every provider implements."""
