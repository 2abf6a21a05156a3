"""The C++ library of ONNX Runtime custom ops; ``edge_rag.runtime.session.ops_library`` finds it."""
