"""Hugging Face checkpoints: safetensors files and what config.json says of a decoder."""
