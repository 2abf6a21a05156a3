"""Generators on NVIDIA GPUs: the paged graph in the operators of ONNX Runtime's CUDA provider."""
