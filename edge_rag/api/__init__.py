"""Generated gRPC stubs; made by ``scripts/generate_api`` from ``proto/``."""
