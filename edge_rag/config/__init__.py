"""Configuration and device profiles."""
