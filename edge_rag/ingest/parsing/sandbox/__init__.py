"""The confined process that parsers run in."""
