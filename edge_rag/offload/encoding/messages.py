"""Requests to remote encoders and the validation of their replies. Pure.

Requests are built as the collection's offload rule allows; there is no other way out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RerankRequest
from edge_rag.core.placement import OffloadRule
from edge_rag.errors import PermissionDenied, RemoteFailed

MAX_PASSAGES: Final = 256
MAX_LIMIT: Final = 1000
MAX_HEADINGS: Final = 64
MAX_TERMS: Final = 1024
MAX_TERM_CHARACTERS: Final = 1024
MAX_TEXT_CHARACTERS: Final = 65_536
MAX_CHARACTERS: Final = 240_000
"""Most characters in one request. At four bytes each they fit the largest message that a daemon takes, 1 MiB."""


@dataclass(frozen=True, slots=True)
class OutboundTexts:
    """Texts to embed.

    Attributes:
        request_id: For the logs of both sides; may be empty.
    """

    embedder: str
    texts: tuple[str, ...]
    questions: bool
    request_id: str


@dataclass(frozen=True, slots=True)
class OutboundCandidate:
    """A passage to rank, without its source."""

    text: str
    headings: tuple[str, ...]
    boost: float


@dataclass(frozen=True, slots=True)
class OutboundCandidates:
    """A question and the passages to rank.

    Attributes:
        passages: In the order of retrieval.
        request_id: For the logs of both sides; may be empty.
        sharing: Requests with the same value may share token vectors; a salted hash that hides the collection's name.
    """

    reranker: str
    question: str
    passages: tuple[OutboundCandidate, ...]
    terms: tuple[tuple[str, float], ...]
    limit: int
    request_id: str
    sharing: str


def build_texts(
    rule: OffloadRule, embedder: str, texts: Sequence[str], questions: bool, request_id: RequestId | None = None
) -> OutboundTexts:
    _require_allowed(rule)
    return OutboundTexts(embedder, tuple(texts), questions, request_id or "")


def build_candidates(rule: OffloadRule, reranker: str, request: RerankRequest, salt: bytes) -> OutboundCandidates:
    """Builds a request to rank passages."""
    _require_allowed(rule)
    context, retrieved = request.context, request.retrieved
    sharing = hashlib.sha256(salt + f"{context.collection} {retrieved.epoch}".encode()).hexdigest()[:32]
    return OutboundCandidates(
        reranker=reranker,
        question=request.question,
        passages=tuple(OutboundCandidate(hit.passage.text, hit.passage.context, hit.boost) for hit in retrieved.hits),
        terms=tuple(retrieved.term_weights.items()),
        limit=request.limit,
        request_id=context.request_id or "",
        sharing=sharing,
    )


def fits(texts: Sequence[str]) -> bool:
    if any(len(text) > MAX_TEXT_CHARACTERS for text in texts) or sum(map(len, texts)) > MAX_CHARACTERS:
        return False
    return all(text.isascii() or is_unicode(text) for text in texts)


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_allowed(rule: OffloadRule) -> None:
    if rule is not OffloadRule.ALLOWED:
        raise PermissionDenied("the collection does not allow unredacted offload")


NORM_TOLERANCE: Final = 1e-3
"""Largest deviation of the length of a vector from 1."""

MIN_COSINE: Final = 0.999
"""Smallest cosine of a remote vector and the local vector of the same text. The same model gives equal vectors, up
to the rounding of different processors."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoteVectors:
    """Vectors as received, not validated.

    Attributes:
        data: float32, little endian, row after row.
        queue_s: Queueing time as reported, seconds.
        compute_s: Compute time as reported, seconds.
    """

    data: bytes
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class RemoteRank:
    """Rank of a passage as received, not validated.

    Attributes:
        passage: 0-based position among the passages sent.
    """

    passage: int
    score: float
    evidence: tuple[float, ...]
    similarity: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteRanks:
    """Ranks as received, not validated.

    Attributes:
        ranked: Best first.
        evidence: Evidence that the passages hold an answer, 0 to 1.
        queue_s: Queueing time as reported, seconds.
        compute_s: Compute time as reported, seconds.
    """

    ranked: tuple[RemoteRank, ...]
    evidence: float
    queue_s: float
    compute_s: float


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


def checked_ranks(ranks: RemoteRanks, sentences: Sequence[int], limit: int) -> RemoteRanks:
    """Returns validated ranks.

    Raises:
        RemoteFailed: The number of passages is wrong, one is unknown or repeated, they are not best first, or a number
            is invalid.
    """
    if len(ranks.ranked) != min(limit, len(sentences)):
        raise RemoteFailed(
            f"the remote ranked {len(ranks.ranked)} of {len(sentences)} passages with a limit of {limit}"
        )
    seen: set[int] = set()
    previous = math.inf
    for rank in ranks.ranked:
        if not 0 <= rank.passage < len(sentences) or rank.passage in seen:
            raise RemoteFailed("the remote ranked a passage twice, or one that it was not sent")
        if len(rank.evidence) != sentences[rank.passage]:
            raise RemoteFailed("the remote split a passage into other sentences")
        if len(rank.similarity) not in (0, len(rank.evidence)):
            raise RemoteFailed("the remote told the similarity of some sentences only")
        if not math.isfinite(rank.score) or not all(map(math.isfinite, (*rank.evidence, *rank.similarity))):
            raise RemoteFailed("the remote returned a score that is not finite")
        if rank.score > previous:
            raise RemoteFailed("the remote did not return the passages best first")
        seen.add(rank.passage)
        previous = rank.score
    if not 0.0 <= ranks.evidence <= 1.0:
        raise RemoteFailed("the remote returned evidence outside 0 to 1")
    return ranks
