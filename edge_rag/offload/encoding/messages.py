"""Requests to remote embedders and the validation of their replies. Pure.

Requests are built as the collection's offload rule allows; there is no other way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.errors import PermissionDenied, RemoteFailed
from edge_rag.offload.ports import OutboundTexts

MAX_TEXT_CHARACTERS: Final = 65_536
MAX_CHARACTERS: Final = 240_000
"""Most characters in one request. At four bytes each they fit the largest message that a daemon takes, 1 MiB."""

NORM_TOLERANCE: Final = 1e-3
"""Largest deviation of the length of a vector from 1."""

MIN_COSINE: Final = 0.999
"""Smallest cosine of a remote vector and the local vector of the same text. The same model gives equal vectors, up
to the rounding of different processors."""


def build_texts(rule: OffloadRule, embedder: str, texts: Sequence[str]) -> OutboundTexts:
    if rule is not OffloadRule.ALLOWED:
        raise PermissionDenied("the collection does not allow unredacted offload")
    return OutboundTexts(embedder, tuple(texts))


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_vectors(data: bytes, texts: int, dimension: int) -> NDArray[np.float32]:
    """Returns vectors, float32 [texts, dimension], each of length 1.

    Raises:
        RemoteFailed: The number of vectors is wrong, or one is not finite or not of length 1.
    """
    if len(data) != 4 * texts * dimension:
        raise RemoteFailed(f"the remote returned {len(data)} bytes for {texts} vectors of {dimension} numbers")
    vectors = np.frombuffer(data, dtype="<f4").reshape(texts, dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise RemoteFailed("the remote returned a vector that is not finite")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if texts and np.abs(lengths - 1.0).max() > NORM_TOLERANCE:
        raise RemoteFailed("the remote returned a vector that is not of length 1")
    return vectors


def same_vector(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors of length 1 can be of the same text and model."""
    return float(one @ other) >= MIN_COSINE
