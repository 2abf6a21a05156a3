"""Encoders for processors that need graphs of fixed shapes."""
