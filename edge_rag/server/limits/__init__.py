"""Limits on what one client may use: connections, concurrent calls, bytes and time."""
