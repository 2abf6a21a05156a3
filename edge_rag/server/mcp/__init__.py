"""The Model Context Protocol: messages and tools, independent of the transport."""
