"""Structured logs and metrics, injected into the parts that report."""
