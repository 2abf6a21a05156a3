"""ONNX Runtime sessions, execution providers, and the compute process."""
