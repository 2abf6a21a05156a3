"""This box's encoders as a service for other boxes. Peers have their own queues; local questions run first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.questions import excerpt
from edge_rag.core.limits.fair_share import may_hold_more
from edge_rag.core.passage import Reranked, RerankRequest
from edge_rag.core.ports import Embedder
from edge_rag.core.query import RequestContext
from edge_rag.errors import NotReady, Overloaded
from edge_rag.pipeline.stage import Stage, Timed, WorkLimit
from edge_rag.pipeline.yield_to_queries import IngestYield

Texts = tuple[str, ...]
Vectors = NDArray[np.float32]
Rerank = Callable[[RerankRequest, float | None], Awaitable[Timed[Reranked]]]

_SLICE_TEXTS: Final = 8
_BATCH_QUESTIONS: Final = 16
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class EncoderServiceLimits:
    """Queue capacities for requests of peers; one peer may fill as much as ``may_hold_more`` says.

    Attributes:
        reranks: Requests to rerank, running ones included. They share the queue of this box's own questions, which
            therefore wait for one batch of them at most.
    """

    passages: int = 32
    questions: int = 64
    reranks: int = 8


class EncoderService:
    """Embeds and reranks for peers. Used from one event loop.

    Args:
        rerank: Orders passages in the pipeline's reranker stage, before a deadline.
        clock: Monotonic seconds.
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
        self._reranks: Counter[str] = Counter()
        self.closing = threading.Event()
        self._passages: Stage[Texts, Vectors] = Stage(
            "peer-passages",
            self._embed_passages,
            self._limits.passages,
            1,
            clock,
            limit=WorkLimit(_texts, _SLICE_TEXTS, self._embed_passages_in_steps),
        )
        self._questions: Stage[Texts, Vectors] = Stage(
            "peer-questions",
            self._embed_questions,
            self._limits.questions,
            _BATCH_QUESTIONS,
            clock,
            limit=WorkLimit(_texts, _BATCH_QUESTIONS, self._embed_questions_in_steps),
        )

    @property
    def embedder(self) -> str:
        return self._embedder.name

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Returns how many tokens of the texts the embedder reads."""
        most = self._embedder.max_tokens
        return sum(min(most, self._embedder.count_tokens(text)) for text in texts)

    async def embed_passages(self, texts: Texts, caller: RequestContext) -> Timed[Vectors]:
        """Embeds passages, a few at a time. A cancelled request ends after its current step.

        Args:
            caller: The peer, which has a fair share, and its deadline.

        Returns:
            float32 [texts, dimension], each row of length 1.
        """
        return await asyncio.wrap_future(self._passages.submit(texts, caller.deadline, caller))

    async def embed_questions(self, texts: Texts, caller: RequestContext) -> Timed[Vectors]:
        with self._ingest_yield.query():
            return await asyncio.wrap_future(self._questions.submit(texts, caller.deadline, caller))

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        with self._ingest_yield.query(), self._rerank_slot(request.context.client):
            weights = request.retrieved.term_weights
            read = await asyncio.to_thread(excerpt, request.question, lambda text: weights, self._embedder.count_tokens)
            return await self._rerank(replace(request, question=read), deadline)

    def close(self) -> None:
        self.closing.set()
        self._passages.close()
        self._questions.close()

    @contextmanager
    def _rerank_slot(self, client: str) -> Iterator[None]:
        if not may_hold_more(self._reranks[client], self._limits.reranks - self._reranks.total()):
            raise Overloaded("reranker", _RETRY_S)
        self._reranks[client] += 1
        try:
            yield
        finally:
            self._reranks[client] -= 1
            if not self._reranks[client]:
                del self._reranks[client]

    def _embed_passages(self, requests: Sequence[Texts]) -> list[Vectors | Exception]:
        began = self._clock()
        vectors: list[Vectors | Exception] = [self._embedder.embed(texts) for texts in requests]
        self._ingest_yield.yield_to_queries(self._clock() - began)
        return vectors

    def _embed_passages_in_steps(self, texts: Texts) -> Generator[None, None, Vectors]:
        return self._in_steps(texts, self._embedder.embed, self._ingest_yield.yield_to_queries)

    def _embed_questions(self, requests: Sequence[Texts]) -> list[Vectors | Exception]:
        vectors = self._embedder.embed_questions([text for texts in requests for text in texts])
        return list(np.split(vectors, np.cumsum([len(texts) for texts in requests])[:-1]))

    def _embed_questions_in_steps(self, texts: Texts) -> Generator[None, None, Vectors]:
        return self._in_steps(texts, self._embedder.embed_questions, lambda worked_s: None)

    def _in_steps(
        self, texts: Texts, embed: Callable[[Sequence[str]], Vectors], pause: Callable[[float], None]
    ) -> Generator[None, None, Vectors]:
        parts: list[Vectors] = []
        for first in range(0, len(texts), _SLICE_TEXTS):
            if self.closing.is_set():
                raise NotReady("the daemon is shutting down")
            began = self._clock()
            parts.append(embed(texts[first : first + _SLICE_TEXTS]))
            pause(self._clock() - began)
            yield
        return np.concatenate(parts)


def _texts(texts: Texts) -> float:
    return max(1, len(texts))
