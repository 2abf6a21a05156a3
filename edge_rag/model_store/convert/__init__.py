"""Converts checkpoints to ONNX and prepares model folders."""
