"""Encoders for GPUs: texts of about one length in a rectangle, in operators that every provider knows."""
