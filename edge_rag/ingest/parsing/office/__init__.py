"""Parsers for office documents and e-books."""
