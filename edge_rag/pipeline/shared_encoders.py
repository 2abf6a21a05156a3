"""This box's encoders as a service for other boxes. Peers have their own queues; local questions run first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import Reranked, RerankRequest
from edge_rag.core.ports import Embedder
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, RequestCancelled
from edge_rag.pipeline.stage import Stage, Timed
from edge_rag.pipeline.yield_to_queries import IngestYield

Vectors = NDArray[np.float32]
Rerank = Callable[[RerankRequest, float | None], Awaitable[Timed[Reranked]]]

_SLICE_TEXTS: Final = 8
_BATCH_QUESTIONS: Final = 16
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class EncoderServiceLimits:
    """Queue capacities for requests of peers.

    Attributes:
        passages: Requests to embed passages.
        questions: Requests to embed questions.
        reranks: Requests to rerank, running ones included. They share the queue of this box's own questions, which
            therefore wait for one batch of them at most.
    """

    passages: int = 32
    questions: int = 64
    reranks: int = 8


@dataclass(frozen=True, slots=True)
class _Texts:
    texts: tuple[str, ...]
    deadline: float | None
    cancelled: threading.Event


class EncoderService:
    """Embeds and reranks for peers. Used from one event loop.

    Args:
        embedder: The embedder.
        reranker: Identity of the reranker's scores.
        rerank: Orders passages in the pipeline's reranker stage, before a deadline.
        ingest_yield: Counts peers' questions as queries; peers' passages yield to queries.
        limits: Queue capacities.
        clock: Monotonic seconds.

    Attributes:
        reranker: Identity of the reranker's scores.
        closing: Set as soon as the service closes.
    """

    def __init__(
        self,
        embedder: Embedder,
        reranker: str,
        rerank: Rerank,
        ingest_yield: IngestYield,
        limits: EncoderServiceLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder = embedder
        self.reranker = reranker
        self._rerank = rerank
        self._ingest_yield = ingest_yield
        self._limits = limits or EncoderServiceLimits()
        self._clock = clock
        self._reranks = 0
        self.closing = threading.Event()
        self._passages: Stage[_Texts, Vectors] = Stage(
            "peer-passages", self._embed_passages, self._limits.passages, 1, clock
        )
        self._questions: Stage[_Texts, Vectors] = Stage(
            "peer-questions", self._embed_questions, self._limits.questions, _BATCH_QUESTIONS, clock
        )

    @property
    def embedder(self) -> str:
        """Identity of the embedder's vectors."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._embedder.dimension

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Returns how many tokens of the texts the embedder reads."""
        most = self._embedder.max_tokens
        return sum(min(most, self._embedder.count_tokens(text)) for text in texts)

    async def embed_passages(self, texts: tuple[str, ...], deadline: float | None) -> Timed[Vectors]:
        """Embeds passages in slices of a few texts. A cancelled request ends after the current slice.

        Returns:
            float32 [texts, dimension], each row of length 1.

        Raises:
            Overloaded: Too many requests wait.
            DeadlineExceeded: The deadline passed.
            InferenceFailed: The model failed.
            NotReady: The daemon is shutting down.
        """
        return await self._embed(self._passages, texts, deadline)

    async def embed_questions(self, texts: tuple[str, ...], deadline: float | None) -> Timed[Vectors]:
        """Embeds questions; see ``embed_passages``."""
        with self._ingest_yield.query():
            return await self._embed(self._questions, texts, deadline)

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        """Orders passages.

        Raises:
            Overloaded: Too many requests wait.
            DeadlineExceeded: The deadline passed.
            InferenceFailed: A model failed.
            NotReady: The daemon is shutting down.
        """
        with self._ingest_yield.query(), self._rerank_slot():
            return await self._rerank(request, deadline)

    def close(self) -> None:
        """Fails queued requests with NotReady, and running ones after their current slice."""
        self.closing.set()
        self._passages.close()
        self._questions.close()

    async def _embed(
        self, stage: Stage[_Texts, Vectors], texts: tuple[str, ...], deadline: float | None
    ) -> Timed[Vectors]:
        cancelled = threading.Event()
        try:
            return await asyncio.wrap_future(stage.submit(_Texts(texts, deadline, cancelled), deadline))
        finally:
            cancelled.set()

    @contextmanager
    def _rerank_slot(self) -> Iterator[None]:
        if self._reranks >= self._limits.reranks:
            raise Overloaded("reranker", _RETRY_S)
        self._reranks += 1
        try:
            yield
        finally:
            self._reranks -= 1

    def _embed_passages(self, requests: Sequence[_Texts]) -> list[Vectors | Exception]:
        return [
            self._in_slices(request, self._embedder.embed, self._ingest_yield.yield_to_queries) for request in requests
        ]

    def _embed_questions(self, requests: Sequence[_Texts]) -> list[Vectors | Exception]:
        embed = self._embedder.embed_questions
        if sum(len(request.texts) for request in requests) > _BATCH_QUESTIONS:
            return [self._in_slices(request, embed, lambda worked_s: None) for request in requests]
        try:
            vectors = embed([text for request in requests for text in request.texts])
        except EdgeRagError as error:
            return [error] * len(requests)
        ends = np.cumsum([len(request.texts) for request in requests])
        return list(np.split(vectors, ends[:-1]))

    def _in_slices(
        self, request: _Texts, embed: Callable[[Sequence[str]], Vectors], pause: Callable[[float], None]
    ) -> Vectors | Exception:
        """Embeds in slices; checks for close, cancellation and deadline before each."""
        parts: list[Vectors] = []
        for first in range(0, len(request.texts), _SLICE_TEXTS):
            began = self._clock()
            if self.closing.is_set():
                return NotReady("the daemon is shutting down")
            if request.cancelled.is_set():
                return RequestCancelled("the peer cancelled the call")
            if request.deadline is not None and began >= request.deadline:
                return DeadlineExceeded("embedder")
            try:
                parts.append(embed(request.texts[first : first + _SLICE_TEXTS]))
            except EdgeRagError as error:
                return error
            pause(self._clock() - began)
        return np.concatenate(parts)
