"""Generators on NVIDIA cards: the paged graph in the operators of ONNX Runtime's CUDA provider."""
