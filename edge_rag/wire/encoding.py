"""Texts that a peer sends to be embedded and passages that it sends to be reranked, and the results."""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING, Final

from edge_rag.api.v1 import encoding_pb2
from edge_rag.core.identity import Identity
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.limits.request_fields import RequestLimits, bounded_int, parse_text
from edge_rag.core.passage import Hit, Passage, Reranked, RerankRequest, Retrieved
from edge_rag.core.query import RequestContext
from edge_rag.errors import InvalidRequest

if TYPE_CHECKING:  # the client alone is installed without NumPy
    import numpy as np
    from numpy.typing import NDArray

MAX_TEXTS: Final = 128
MAX_PASSAGES: Final = 256
MAX_LIMIT: Final = 1000
MAX_TEXT_CHARACTERS: Final = 65_536
MAX_EMBED_CHARACTERS: Final = 1 << 19
MAX_RERANK_CHARACTERS: Final = 1 << 18
MAX_HEADINGS: Final = 64
MAX_TERMS: Final = 1024
MAX_TERM_CHARACTERS: Final = 1024

_SHARING: Final = re.compile(r"[0-9a-f]{0,64}")
_QUESTIONS: Final = {
    encoding_pb2.EMBED_PURPOSE_UNSPECIFIED: False,
    encoding_pb2.EMBED_PURPOSE_PASSAGE: False,
    encoding_pb2.EMBED_PURPOSE_QUESTION: True,
}


def parse_embed_request(request: encoding_pb2.EmbedRequest) -> tuple[tuple[str, ...], bool]:
    """Returns the texts to embed, and whether they are questions.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    if request.purpose not in _QUESTIONS:
        raise InvalidRequest("purpose", f"{request.purpose} is not a purpose")
    bounded_int("texts", len(request.texts), 1, MAX_TEXTS)
    for number, text in enumerate(request.texts):
        if len(text) > MAX_TEXT_CHARACTERS:
            raise InvalidRequest(f"texts[{number}]", f"at most {MAX_TEXT_CHARACTERS:,} characters, has {len(text):,}")
    _bounded("texts", sum(map(len, request.texts)), MAX_EMBED_CHARACTERS)
    return tuple(request.texts), _QUESTIONS[request.purpose]


def parse_rerank_request(request: encoding_pb2.RerankRequest, caller: Identity, limits: RequestLimits) -> RerankRequest:
    """Returns the question and the passages to rerank.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    if not _SHARING.fullmatch(request.sharing):
        raise InvalidRequest("sharing", "must be up to 64 characters of 0-9 and a-f")
    bounded_int("passages", len(request.passages), 1, MAX_PASSAGES)
    bounded_int("terms", len(request.terms), 0, MAX_TERMS)
    chunk = _peer_chunk(f"{caller.name}/{request.sharing}")
    hits = tuple(_hit(number, passage, chunk) for number, passage in enumerate(request.passages))
    characters = sum(len(hit.passage.text) + sum(map(len, hit.passage.context)) for hit in hits)
    _bounded("passages", characters, MAX_RERANK_CHARACTERS)
    terms: dict[str, float] = {}
    for number, term in enumerate(request.terms):
        if not 1 <= len(term.word) <= MAX_TERM_CHARACTERS or not (math.isfinite(term.weight) and term.weight >= 0):
            raise InvalidRequest(f"terms[{number}]", "must be a word with a finite weight of at least 0")
        terms[term.word] = term.weight
    return RerankRequest(
        question=parse_text("question", request.question, limits.question_characters),
        retrieved=Retrieved(hits, terms),
        limit=bounded_int("limit", request.limit, 1, MAX_LIMIT),
        context=RequestContext(client=caller.name),
    )


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


def ranks_to_message(
    reranker: str, reranked: Reranked, queue_s: float, compute_s: float
) -> encoding_pb2.RerankResponse:
    """Returns the result for the passages of ``parse_rerank_request`` as a message."""
    return encoding_pb2.RerankResponse(
        reranker=reranker,
        ranked=[
            encoding_pb2.RankedCandidate(
                passage=int(ranked.passage.document),
                score=ranked.score,
                evidence=[sentence.evidence for sentence in ranked.sentences],
                similarity=[each.similarity for each in ranked.sentences if each.similarity is not None],
            )
            for ranked in reranked.passages
        ],
        evidence=reranked.evidence,
        queue_seconds=queue_s,
        compute_seconds=compute_s,
    )


def _hit(number: int, message: encoding_pb2.Candidate, chunk: ChunkId) -> Hit:
    field = f"passages[{number}]"
    if not 1 <= len(message.text) <= MAX_TEXT_CHARACTERS:
        raise InvalidRequest(
            f"{field}.text", f"must be 1 to {MAX_TEXT_CHARACTERS:,} characters, has {len(message.text):,}"
        )
    if len(message.headings) > MAX_HEADINGS or any(len(heading) > MAX_TEXT_CHARACTERS for heading in message.headings):
        raise InvalidRequest(f"{field}.headings", f"at most {MAX_HEADINGS}, of {MAX_TEXT_CHARACTERS:,} characters each")
    boost = message.boost if message.HasField("boost") else 1.0
    if not (math.isfinite(boost) and boost > 0):
        raise InvalidRequest(f"{field}.boost", "must be finite and above 0")
    name = str(number)
    passage = Passage(chunk, DocumentId(name), name, None, 0, len(message.text), message.text, tuple(message.headings))
    return Hit(passage, 0.0, boost=boost)


def _bounded(field: str, characters: int, most: int) -> None:
    if characters > most:
        raise InvalidRequest(field, f"at most {most:,} characters together, have {characters:,}")


def _peer_chunk(domain: str) -> ChunkId:
    return ChunkId(-1 - int.from_bytes(hashlib.sha256(domain.encode()).digest()[:7]))
