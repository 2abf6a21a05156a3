"""A reranker that borrows other machines': implements the pipeline's ``Reranker`` over this box's and remotes.

What is sent are the passages and what their words weigh; what comes back are scores, and the evidence of each sentence.
Passages and sentences are this box's own.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.offload.encoding.batch import BatchItem, Sharing
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderResult, EncodingRemote
from edge_rag.offload.encoding.messages import (
    LARGEST_LIMIT,
    LONGEST_TERM,
    MOST_HEADINGS,
    MOST_PASSAGES,
    MOST_TERMS,
    Ranks,
    checked_ranks,
    fits,
    release_candidates,
)
from edge_rag.offload.encoding.routing import Work
from edge_rag.offload.generation.routing import documents_key


class LocalReranker(Protocol):
    """The reranker of this box. Called by one thread at a time."""

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; see ``pipeline.ports.Reranker``."""
        ...


class OffloadingReranker:
    """Orders passages here or elsewhere. For one thread at a time.

    Args:
        loan: Decides, and knows the machines.
        local: This box's reranker.
    """

    def __init__(self, loan: EncoderOffload, local: LocalReranker) -> None:
        self._loan = loan
        self._salt = secrets.token_bytes(16)
        self._sharing: Sharing[RerankRequest, Reranked] = Sharing(loan, Work.RANKS, local.rerank, self._errand)

    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        """Answers each request, in order; see ``pipeline.ports.Reranker``."""
        return self._sharing.compute(requests)

    def close(self) -> None:
        """Lets what is done here finish."""
        self._sharing.close()

    def _errand(self, request: RerankRequest) -> BatchItem[Reranked]:
        hits = request.retrieved.hits
        key = documents_key(hit.passage.document_id for hit in hits)
        wanted = EncodeRequest(
            Work.RANKS, request.context, request.retrieved.offload, len(hits), key, _sendable(request)
        )
        parcel = EncoderCall(
            Work.RANKS, request.context, max(1, len(hits)), partial(self._seal, request), partial(self._ask, request)
        )
        return BatchItem(wanted, parcel)

    def _seal(self, request: RerankRequest, remote: EncodingRemote) -> bytes:
        rule, reranker = request.retrieved.offload, self._loan.courier.models.reranker
        return remote.seal_candidates(release_candidates(rule, reranker, request, self._salt))

    async def _ask(
        self, request: RerankRequest, remote: EncodingRemote, sealed: bytes, within_s: float
    ) -> EncoderResult[Reranked]:
        reply = await remote.rerank(sealed, within_s)
        spans = [sentence_spans(hit.passage.text) for hit in request.retrieved.hits]
        ranks = checked_ranks(reply, [len(each) for each in spans], request.limit)
        return EncoderResult(_reranked(request, ranks, spans), reply.queue_s, reply.compute_s)


def _sendable(request: RerankRequest) -> bool:
    hits, terms = request.retrieved.hits, request.retrieved.term_weights
    texts = [request.question, *(text for hit in hits for text in (hit.passage.text, *hit.passage.context))]
    few = 1 <= len(hits) <= MOST_PASSAGES and request.limit <= LARGEST_LIMIT and len(terms) <= MOST_TERMS
    whole = all(hit.passage.text and len(hit.passage.context) <= MOST_HEADINGS for hit in hits)
    return few and whole and fits(texts) and max(map(len, terms), default=0) <= LONGEST_TERM


def _reranked(request: RerankRequest, ranks: Ranks, spans: Sequence[tuple[tuple[int, int], ...]]) -> Reranked:
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
