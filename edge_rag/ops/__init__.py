"""The C++ library of ONNX Runtime custom ops; ``edge_rag.runtime.session.sessions`` finds it."""
