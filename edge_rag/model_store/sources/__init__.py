"""Where models come from: the hub, Ollama, Python packages, archives of other boxes."""
