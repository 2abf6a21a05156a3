"""Where the vectors of a collection are indexed."""

from __future__ import annotations

from enum import Enum


class HomeKind(Enum):
    """A place that keeps vector indexes."""

    FAISS = "faiss"
    MILVUS = "milvus"
