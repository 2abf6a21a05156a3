"""What is done about a damaged data directory: salvage, repair, restore."""
