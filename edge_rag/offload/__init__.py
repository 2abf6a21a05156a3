"""Generation and encoding on remote machines: routing, redaction, and local fallback."""
