"""The operations of the daemon in core values. No transport: ``server/`` adapts gRPC to it."""
