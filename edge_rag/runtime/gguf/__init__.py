"""Models in llama.cpp's GGUF format."""
