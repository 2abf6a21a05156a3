"""What leaves this box to be embedded or reranked, and the only way to make it: by the collection's rule.

What other machines computed, checked for what can be checked of it. Pure.
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

MOST_PASSAGES: Final = 256
LARGEST_LIMIT: Final = 1000
MOST_HEADINGS: Final = 64
MOST_TERMS: Final = 1024
LONGEST_TERM: Final = 1024
LONGEST_TEXT: Final = 65_536
MOST_CHARACTERS: Final = 1 << 18
"""Most characters that are sent at once."""


@dataclass(frozen=True, slots=True)
class SentTexts:
    """Texts to be embedded.

    Attributes:
        embedder: Names the vectors that are wanted.
        texts: The texts.
        questions: Whether they are questions; else passages.
        request_id: For both sides' logs; empty where there is none.
    """

    embedder: str
    texts: tuple[str, ...]
    questions: bool
    request_id: str


@dataclass(frozen=True, slots=True)
class SentCandidate:
    """A passage to be ranked: where it is from stays here.

    Attributes:
        text: Its text.
        headings: The headings above it.
        boost: What its score is multiplied by.
    """

    text: str
    headings: tuple[str, ...]
    boost: float


@dataclass(frozen=True, slots=True)
class SentCandidates:
    """A question and the passages to be ranked.

    Attributes:
        reranker: Names the scores that are wanted.
        question: The question.
        passages: In the order in which they were found.
        terms: What the question's words weigh.
        limit: Most passages that are wanted back.
        request_id: For both sides' logs; empty where there is none.
        sharing: Requests with the same value may share token vectors; says nothing of the collection's name.
    """

    reranker: str
    question: str
    passages: tuple[SentCandidate, ...]
    terms: tuple[tuple[str, float], ...]
    limit: int
    request_id: str
    sharing: str


def release_texts(
    rule: OffloadRule, embedder: str, texts: Sequence[str], questions: bool, request_id: RequestId | None = None
) -> SentTexts:
    """Lets texts leave as their collection's rule allows.

    Raises:
        PermissionDenied: They may not leave as they are.
    """
    _let_out(rule)
    return SentTexts(embedder, tuple(texts), questions, request_id or "")


def release_candidates(rule: OffloadRule, reranker: str, request: RerankRequest, salt: bytes) -> SentCandidates:
    """Lets a question and its passages leave as their collection's rule allows.

    Args:
        rule: The collection's.
        reranker: Names the scores that are wanted.
        request: What is to be ranked.
        salt: Keeps the collection's name from being guessed.

    Raises:
        PermissionDenied: They may not leave as they are.
    """
    _let_out(rule)
    context, retrieved = request.context, request.retrieved
    sharing = hashlib.sha256(salt + f"{context.collection} {retrieved.epoch}".encode()).hexdigest()[:32]
    return SentCandidates(
        reranker=reranker,
        question=request.question,
        passages=tuple(SentCandidate(hit.passage.text, hit.passage.context, hit.boost) for hit in retrieved.hits),
        terms=tuple(retrieved.term_weights.items()),
        limit=request.limit,
        request_id=context.request_id or "",
        sharing=sharing,
    )


def fits(texts: Sequence[str]) -> bool:
    """Whether texts can be sent at once: they are not too long, and Unicode."""
    if any(len(text) > LONGEST_TEXT for text in texts) or sum(map(len, texts)) > MOST_CHARACTERS:
        return False
    return all(text.isascii() or is_unicode(text) for text in texts)


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _let_out(rule: OffloadRule) -> None:
    if rule is not OffloadRule.ALLOWED:
        raise PermissionDenied("nothing of the collection may leave this box as it is")


NORM_TOLERANCE: Final = 1e-3
"""How far the length of a vector may be from 1."""

LEAST_COSINE: Final = 0.999
"""How alike a remote's vector must be to the one computed here of the same text. One model gives the same bits on all
machines; the tolerance is for processors whose last digits differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Vectors as a remote sent them.

    Attributes:
        data: float32, little endian, one vector after the other; not checked.
        queue_s: How long they waited there, as stated, seconds.
        compute_s: How long they were worked on there, as stated, seconds.
    """

    data: bytes
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Rank:
    """A passage's rank as a remote sent it; not checked.

    Attributes:
        passage: 0-based position among those that were sent.
        score: Larger is better.
        evidence: Of each of its sentences.
    """

    passage: int
    score: float
    evidence: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks as a remote sent them; not checked.

    Attributes:
        ranked: Best first.
        evidence: How much speaks for an answer being among them.
        queue_s: How long it waited there, as stated, seconds.
        compute_s: How long it was worked on there, as stated, seconds.
    """

    ranked: tuple[Rank, ...]
    evidence: float
    queue_s: float
    compute_s: float


def checked_vectors(data: bytes, texts: int, dimension: int) -> NDArray[np.float32]:
    """Returns vectors, float32 [texts, dimension], each of length 1.

    Raises:
        RemoteFailed: They are too few or too many, no numbers, or of other lengths.
    """
    if len(data) != 4 * texts * dimension:
        raise RemoteFailed(f"{len(data)} bytes came for {texts} vectors of {dimension} numbers")
    vectors = np.frombuffer(data, dtype="<f4").reshape(texts, dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise RemoteFailed("a vector holds what is no number")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if texts and np.abs(lengths - 1.0).max() > NORM_TOLERANCE:
        raise RemoteFailed("a vector is not of length 1")
    return vectors


def agree(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors of length 1 are of the same text and model."""
    return float(one @ other) >= LEAST_COSINE


def checked_ranks(ranks: Ranks, sentences: Sequence[int], limit: int) -> Ranks:
    """Returns ranks that can be ranks of what was sent.

    Args:
        ranks: As they came.
        sentences: Number of sentences of each passage that was sent.
        limit: Most passages that were asked for.

    Raises:
        RemoteFailed: Too many or too few passages, one twice or unknown, not best first, or numbers that are none.
    """
    if len(ranks.ranked) != min(limit, len(sentences)):
        raise RemoteFailed(f"{len(ranks.ranked)} passages came of {len(sentences)}, {limit} at most were asked for")
    seen: set[int] = set()
    before = math.inf
    for rank in ranks.ranked:
        if not 0 <= rank.passage < len(sentences) or rank.passage in seen:
            raise RemoteFailed("it ranked a passage twice, or one that it was not sent")
        if len(rank.evidence) != sentences[rank.passage]:
            raise RemoteFailed("it cut a passage into other sentences")
        if not math.isfinite(rank.score) or not all(map(math.isfinite, rank.evidence)):
            raise RemoteFailed("a score is no number")
        if rank.score > before:
            raise RemoteFailed("its passages are not best first")
        seen.add(rank.passage)
        before = rank.score
    if not 0.0 <= ranks.evidence <= 1.0:
        raise RemoteFailed("its evidence is not between 0 and 1")
    return ranks
