"""Parsers for plain text, Markdown, HTML and mail."""
