"""edge-rag: cited answers from a box's own documents, over gRPC, without a cloud."""

__version__ = "0.2.0"
