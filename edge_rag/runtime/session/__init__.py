"""ONNX Runtime sessions, execution providers, and settings of the process."""
