"""The C++ library of ONNX Runtime custom ops; ``edge_rag.runtime.ops_library`` finds it."""
