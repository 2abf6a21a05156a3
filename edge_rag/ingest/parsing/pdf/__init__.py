"""The PDF parser: layout, reading order, tables and OCR."""
