"""Implements the pipeline's ``Reranker`` over the local reranker and remotes.

A remote gets the passages and the weights of the question's terms, and returns scores and the evidence of each
sentence. The passages and sentences of the result are the local ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.offload.encoding.batch import BatchEncoder, BatchItem
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderResult, EncodingRemote
from edge_rag.offload.encoding.messages import (
    MAX_HEADINGS,
    MAX_LIMIT,
    MAX_PASSAGES,
    MAX_TERM_CHARACTERS,
    MAX_TERMS,
    RemoteRanks,
    build_candidates,
    checked_ranks,
    fits,
)
from edge_rag.offload.encoding.routing import EncoderWork
from edge_rag.offload.generation.routing import documents_key


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
        """Waits for local work in progress."""
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
    return few and complete and fits(texts) and max(map(len, terms), default=0) <= MAX_TERM_CHARACTERS


def _reranked(request: RerankRequest, ranks: RemoteRanks, spans: Sequence[tuple[tuple[int, int], ...]]) -> Reranked:
    return Reranked(
        tuple(
            RankedPassage(
                request.retrieved.hits[rank.passage].passage,
                rank.score,
                tuple(
                    Sentence(start, end, evidence)
                    for (start, end), evidence in zip(spans[rank.passage], rank.evidence, strict=True)
                ),
            )
            for rank in ranks.ranked
        ),
        ranks.evidence,
    )
