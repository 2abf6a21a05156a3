"""What leaves this box to be embedded or reranked, and the only way to make it: by the collection's rule."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.ids import RequestId
from edge_rag.core.offload import OffloadRule
from edge_rag.core.passage import RerankRequest
from edge_rag.errors import PermissionDenied

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
    asker, retrieved = request.asker, request.retrieved
    sharing = hashlib.sha256(salt + f"{asker.collection} {retrieved.epoch}".encode()).hexdigest()[:32]
    return SentCandidates(
        reranker=reranker,
        question=request.question,
        passages=tuple(SentCandidate(hit.passage.text, hit.passage.context, hit.boost) for hit in retrieved.hits),
        terms=tuple(retrieved.term_weights.items()),
        limit=request.limit,
        request_id=asker.request_id or "",
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
