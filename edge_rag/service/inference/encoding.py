"""This box's encoders for the texts of callers: vectors of texts, and texts in the order of their relevance."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.identity import Role
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.limits.request_fields import RequestLimits, bounded_int, parse_text
from edge_rag.core.passage import Hit, Passage, RerankRequest, Retrieved
from edge_rag.core.query import RequestContext
from edge_rag.errors import InvalidRequest
from edge_rag.service.call import Call, Operation

EMBED_TEXTS: Final = Operation("EmbedTexts", Role.READER)
RERANK_TEXTS: Final = Operation("RerankTexts", Role.READER)

MAX_TEXTS: Final = 1024
"""Most texts that a call embeds or reranks."""

MAX_TEXT_CHARACTERS: Final = 65_536
"""Most characters of one of them."""

MAX_EMBEDDED_CHARACTERS: Final = 1 << 19
"""Most characters that a call embeds."""

MAX_RERANKED_CHARACTERS: Final = 1 << 18
"""Most characters of the texts that a call reranks."""


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Vectors of texts.

    Attributes:
        vectors: float32 [texts, dimension], each row of length 1.
    """

    model: str
    vectors: NDArray[np.float32]
    tokens: int


@dataclass(frozen=True, slots=True)
class RelevantTexts:
    """Texts in the order of their relevance.

    Attributes:
        ranked: Index of each text and its relevance, 0 to 1, the best first.
    """

    model: str
    ranked: tuple[tuple[int, float], ...]
    tokens: int


async def embed(
    call: Call, texts: tuple[str, ...], questions: bool, dimension: int | None = None, *, field: str
) -> TextVectors:
    """Embeds texts as documents' passages are embedded, or as questions; the caller's quota is charged.

    Args:
        dimension: Length of a vector that the caller expects, if it expects one.
    """
    encoders = call.backend.encoders
    _check_texts(field, texts, MAX_EMBEDDED_CHARACTERS)
    if dimension not in (None, encoders.dimension):
        raise InvalidRequest("dimensions", f"must be {encoders.dimension}, the embedder's; leave it out")
    caller = RequestContext(call.request_id, call.identity.name, deadline=call.deadline)
    async with call.charged(list(texts)):
        found = await (encoders.embed_questions if questions else encoders.embed_passages)(texts, caller)
    return TextVectors(encoders.embedder, found.value, await call.run(encoders.count_tokens, texts))


async def rerank(
    call: Call, question: str, texts: tuple[str, ...], limit: int | None, limits: RequestLimits, *, field: str
) -> RelevantTexts:
    """Orders texts by their relevance for a question; the caller's quota is charged.

    A text's relevance depends on the question and the text alone. It is the probability that a cross-encoder gives or,
    without one, the mean over the question's tokens of the best cosine with a token of the text (max-sim), from 0 on.

    Args:
        limit: Most texts to return, at least 1; None for all.
    """
    encoders = call.backend.encoders
    asked = parse_text("query", question, limits.question_characters)
    _check_texts(field, texts, MAX_RERANKED_CHARACTERS)
    chunk = _chunk_of(call.identity.name)
    hits = tuple(
        Hit(Passage(chunk, DocumentId(str(index)), str(index), None, 0, len(text), text), 0.0)
        for index, text in enumerate(texts)
    )
    context = RequestContext(call.request_id, call.identity.name, deadline=call.deadline)
    request = RerankRequest(asked, Retrieved(hits), limit or len(texts), context, pointwise=True)
    read = [asked, *texts]
    async with call.charged(list(read)):
        found = await encoders.rerank(request, call.deadline)
    ranked = tuple((int(each.passage.document_id), each.score) for each in found.value.passages)
    return RelevantTexts(encoders.reranker, ranked, await call.run(encoders.count_tokens, read))


def _check_texts(field: str, texts: Sequence[str], most_characters: int) -> None:
    bounded_int(field, len(texts), 1, MAX_TEXTS)
    for index, text in enumerate(texts):
        if not 1 <= len(text) <= MAX_TEXT_CHARACTERS:
            reason = f"must be 1 to {MAX_TEXT_CHARACTERS:,} characters, has {len(text):,}"
            raise InvalidRequest(f"{field}[{index}]", reason)
    characters = sum(map(len, texts))
    if characters > most_characters:
        raise InvalidRequest(field, f"have {characters:,} characters together, at most {most_characters:,} are allowed")


def _chunk_of(caller: str) -> ChunkId:
    """Returns the id under which a caller's texts are cached: negative, as no id of a stored chunk is, and of no peer.

    In a shared cache, a caller could infer from response times which texts another one sent.
    """
    return ChunkId(-1 - int.from_bytes(hashlib.sha256(f"texts of {caller}".encode()).digest()[:7]))
