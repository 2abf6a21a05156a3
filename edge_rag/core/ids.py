"""Identifier types, so that one kind of id cannot stand in for another."""

from __future__ import annotations

from typing import NewType

DocumentId = NewType("DocumentId", str)
"""Opaque, URL-safe, unique across collections."""

ChunkId = NewType("ChunkId", int)
"""Positive 63-bit integer, never reused; the FAISS id and the SQLite row id."""

RequestId = NewType("RequestId", str)
"""Opaque; made by the server where the client sends none."""
