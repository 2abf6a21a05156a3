"""Texts that a peer sends to be embedded, and their vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_rag.api.v1 import encoding_pb2
from edge_rag.core.limits.request_fields import bounded_int
from edge_rag.errors import InvalidRequest

if TYPE_CHECKING:  # the client alone is installed without NumPy
    import numpy as np
    from numpy.typing import NDArray

MAX_TEXTS: Final = 128
MAX_TEXT_CHARACTERS: Final = 65_536
MAX_EMBED_CHARACTERS: Final = 1 << 19

_PURPOSES: Final = (encoding_pb2.EMBED_PURPOSE_UNSPECIFIED, encoding_pb2.EMBED_PURPOSE_PASSAGE)


def parse_embed_request(request: encoding_pb2.EmbedRequest) -> tuple[str, ...]:
    """Returns the texts to embed.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    if request.purpose not in _PURPOSES:
        raise InvalidRequest("purpose", f"{request.purpose} is not a purpose")
    bounded_int("texts", len(request.texts), 1, MAX_TEXTS)
    for number, text in enumerate(request.texts):
        if len(text) > MAX_TEXT_CHARACTERS:
            raise InvalidRequest(f"texts[{number}]", f"at most {MAX_TEXT_CHARACTERS:,} characters, has {len(text):,}")
    characters = sum(map(len, request.texts))
    if characters > MAX_EMBED_CHARACTERS:
        reason = f"at most {MAX_EMBED_CHARACTERS:,} characters together, have {characters:,}"
        raise InvalidRequest("texts", reason)
    return tuple(request.texts)


def vectors_to_message(
    embedder: str, vectors: NDArray[np.float32], queue_s: float, compute_s: float
) -> encoding_pb2.EmbedResponse:
    """Returns vectors, float32 [texts, dimension], as a message."""
    return encoding_pb2.EmbedResponse(
        embedder=embedder,
        vectors=vectors.astype("<f4", copy=False).tobytes(),
        queue_seconds=queue_s,
        compute_seconds=compute_s,
    )
