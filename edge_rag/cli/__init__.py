"""The command line; talks to a daemon over gRPC."""
