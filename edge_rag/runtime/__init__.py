"""The only room that imports ONNX Runtime."""
