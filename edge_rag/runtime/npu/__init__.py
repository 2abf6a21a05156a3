"""Encoders for processors that take graphs of fixed shapes only."""
