"""What commands print: text, JSON, and the status dashboard."""
