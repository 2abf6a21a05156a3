"""The daemon's front: call handling, authentication, limits, and the gRPC adapter."""
