"""Remote machines: connections, health, latency and trust."""
