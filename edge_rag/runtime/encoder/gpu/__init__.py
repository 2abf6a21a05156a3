"""Encoders for GPUs: texts padded to rectangles, in operators that every provider implements."""
