"""Remedies for a damaged data directory: salvage, repair, restore."""
