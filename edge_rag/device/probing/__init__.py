"""Reads hardware facts from the operating system."""
