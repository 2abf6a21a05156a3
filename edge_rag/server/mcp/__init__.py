"""The Model Context Protocol: messages and tools, whatever carries them."""
