"""Implements the retriever's ``Embedding`` and the pipeline's ``Reranker`` over the local encoders and remotes.

For reranking, a remote gets the passages and the weights of the question's terms, and returns scores and the evidence
of each sentence. The passages and sentences of the result are the local ones.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest, Sentence
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import NO_CONTEXT, Question
from edge_rag.core.text import sentence_spans
from edge_rag.offload.encoding.batch import BatchEncoder, BatchItem
from edge_rag.offload.encoding.bulk_embedding import BulkEmbedding, LocalEmbedder
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderResult, EncodingRemote
from edge_rag.offload.encoding.messages import (
    MAX_HEADINGS,
    MAX_LIMIT,
    MAX_PASSAGES,
    MAX_TERM_CHARACTERS,
    MAX_TERMS,
    RemoteRanks,
    build_candidates,
    build_texts,
    checked_ranks,
    checked_vectors,
    fits,
)
from edge_rag.offload.encoding.routing import EncoderWork
from edge_rag.offload.generation.routing import Place, documents_key

Vectors = NDArray[np.float32]


class OffloadingEmbedding:
    """Embeds locally or on remotes.

    Args:
        embed_questions: Embeds questions locally: float32 [questions, dimension].
    """

    def __init__(
        self, offload: EncoderOffload, embed_questions: Callable[[Sequence[str]], Vectors], batch_size: int
    ) -> None:
        self._offload = offload
        self._embed_questions = embed_questions
        self._batch_size = batch_size
        self._batches: BatchEncoder[Question, Vectors] = BatchEncoder(
            offload, EncoderWork.QUESTIONS, self._local, self._item
        )

    def questions(self, questions: Sequence[Question]) -> Vectors:
        vectors = self._batches.encode(questions)
        return np.stack(vectors) if vectors else np.empty((0, self._offload.caller.models.dimension), dtype=np.float32)

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        local: Callable[[Sequence[str]], Vectors],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> Vectors:
        """Embeds the passages of a document; see ``core.ports.Embedding``."""
        decision = self._offload.place(
            EncodeRequest(EncoderWork.PASSAGES, NO_CONTEXT, rule(), len(texts), b"", bool(texts))
        )
        if decision.place is not Place.LOCAL:
            embedder = LocalEmbedder(local, yield_to_queries, self._batch_size)
            return BulkEmbedding(self._offload, decision, texts, rule, embedder, on_progress).run()
        parts: list[Vectors] = []
        for first in range(0, len(texts), self._batch_size):
            on_progress(first)
            part, started = texts[first : first + self._batch_size], self._offload.clock()
            parts.append(local(part))
            elapsed = self._offload.clock() - started
            self._offload.measure_local(EncoderWork.PASSAGES, len(part), elapsed)
            yield_to_queries(elapsed)
        return np.concatenate(parts) if parts else local(texts)

    def close(self) -> None:
        self._batches.close()

    def _local(self, questions: Sequence[Question]) -> Sequence[Vectors]:
        return list(self._embed_questions([question.text for question in questions]))

    def _item(self, question: Question) -> BatchItem[Vectors]:
        text, context = question.text, question.context
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        request = EncodeRequest(EncoderWork.QUESTIONS, context, question.rule, 1, key, fits((text,)))
        serialize = partial(self._serialize, question)
        return BatchItem(request, EncoderCall(EncoderWork.QUESTIONS, context, 1, serialize, self._execute))

    def _serialize(self, question: Question, remote: EncodingRemote) -> bytes:
        embedder, request_id = self._offload.caller.models.embedder, question.context.request_id
        return remote.serialize_texts(build_texts(question.rule, embedder, [question.text], True, request_id))

    async def _execute(self, remote: EncodingRemote, body: bytes, timeout_s: float) -> EncoderResult[Vectors]:
        reply = await remote.embed(body, timeout_s)
        vectors = checked_vectors(reply.data, 1, self._offload.caller.models.dimension)
        return EncoderResult(vectors[0], reply.queue_s, reply.compute_s)


class LocalReranker(Protocol):
    """The reranker of this box. Called by one thread at a time."""

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; see ``pipeline.ports.Reranker``."""
        ...


class OffloadingReranker:
    """Reranks locally or on remotes. For one thread at a time."""

    def __init__(self, offload: EncoderOffload, local: LocalReranker) -> None:
        self._offload = offload
        self._salt = secrets.token_bytes(16)
        self._batches: BatchEncoder[RerankRequest, Reranked] = BatchEncoder(
            offload, EncoderWork.RANKS, local.rerank, self._item
        )

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; see ``pipeline.ports.Reranker``."""
        return self._batches.encode(requests)

    def close(self) -> None:
        self._batches.close()

    def _item(self, request: RerankRequest) -> BatchItem[Reranked]:
        hits, rule, context = request.retrieved.hits, request.retrieved.offload, request.context
        key = documents_key(hit.passage.document_id for hit in hits)
        routed = EncodeRequest(EncoderWork.RANKS, context, rule, len(hits), key, _sendable(request))
        serialize, execute = partial(self._serialize, request), partial(self._execute, request)
        return BatchItem(routed, EncoderCall(EncoderWork.RANKS, context, max(1, len(hits)), serialize, execute))

    def _serialize(self, request: RerankRequest, remote: EncodingRemote) -> bytes:
        rule, reranker = request.retrieved.offload, self._offload.caller.models.reranker
        return remote.serialize_candidates(build_candidates(rule, reranker, request, self._salt))

    async def _execute(
        self, request: RerankRequest, remote: EncodingRemote, body: bytes, timeout_s: float
    ) -> EncoderResult[Reranked]:
        reply = await remote.rerank(body, timeout_s)
        spans = [sentence_spans(hit.passage.text) for hit in request.retrieved.hits]
        ranks = checked_ranks(reply, [len(each) for each in spans], request.limit)
        return EncoderResult(_reranked(request, ranks, spans), reply.queue_s, reply.compute_s)


def _sendable(request: RerankRequest) -> bool:
    hits, terms = request.retrieved.hits, request.retrieved.term_weights
    texts = [request.question, *(text for hit in hits for text in (hit.passage.text, *hit.passage.context))]
    few = 1 <= len(hits) <= MAX_PASSAGES and request.limit <= MAX_LIMIT and len(terms) <= MAX_TERMS
    complete = all(hit.passage.text and len(hit.passage.context) <= MAX_HEADINGS for hit in hits)
    return (
        few
        and complete
        and not request.pointwise
        and fits(texts)
        and max(map(len, terms), default=0) <= MAX_TERM_CHARACTERS
    )


def _reranked(request: RerankRequest, ranks: RemoteRanks, spans: Sequence[tuple[tuple[int, int], ...]]) -> Reranked:
    return Reranked(
        tuple(
            RankedPassage(
                request.retrieved.hits[rank.passage].passage,
                rank.score,
                tuple(
                    Sentence(start, end, evidence, similarity)
                    for (start, end), evidence, similarity in zip(
                        spans[rank.passage], rank.evidence, rank.similarity or repeat(None), strict=False
                    )
                ),
            )
            for rank in ranks.ranked
        ),
        ranks.evidence,
    )
