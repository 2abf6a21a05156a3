"""The gRPC adapter: parses requests, calls services, and maps results and errors."""
