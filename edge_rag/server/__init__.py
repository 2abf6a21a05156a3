"""gRPC: protobuf to core values and back, status codes, health, reflection."""
