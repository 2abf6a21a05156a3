"""What models compute for callers from texts of their own, without stored data."""
