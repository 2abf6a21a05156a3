"""OpenAI's API shape."""
