"""Encoders lent to other boxes: their texts wait in queues of their own, and this box's own questions go first."""

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

_TEXTS_AT_ONCE: Final = 8
_QUESTIONS_AT_ONCE: Final = 16
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class EncoderServiceLimits:
    """How much peers may leave waiting.

    Attributes:
        passages: Requests for vectors of passages.
        questions: Requests for vectors of questions.
        reranks: Requests for ranks, those in work included; they wait in the queue of this box's own questions, which
            should find one batch of them before themselves at most.
    """

    passages: int = 32
    questions: int = 64
    reranks: int = 8


@dataclass(frozen=True, slots=True)
class _Texts:
    texts: tuple[str, ...]
    deadline: float | None
    shed: threading.Event


class EncoderService:
    """Lends the embedder and the reranker. Used from one event loop.

    Args:
        embedder: Turns text into vectors.
        reranker: Names the reranker's scores.
        rerank: Orders passages, in the pipeline's own stage; given a deadline.
        precedence: Told of peers' questions; peers' passages give way to questions.
        limits: How much may wait.
        clock: Monotonic seconds.

    Attributes:
        reranker: Names the reranker's scores.
        closing: Set once nothing more is lent.
    """

    def __init__(
        self,
        embedder: Embedder,
        reranker: str,
        rerank: Rerank,
        precedence: IngestYield,
        limits: EncoderServiceLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder = embedder
        self.reranker = reranker
        self._rerank = rerank
        self._precedence = precedence
        self._limits = limits or EncoderServiceLimits()
        self._clock = clock
        self._reranks = 0
        self.closing = threading.Event()
        self._passages: Stage[_Texts, Vectors] = Stage(
            "lent-passages", self._embed_passages, self._limits.passages, 1, clock
        )
        self._questions: Stage[_Texts, Vectors] = Stage(
            "lent-questions", self._embed_questions, self._limits.questions, _QUESTIONS_AT_ONCE, clock
        )

    @property
    def embedder(self) -> str:
        """Names the embedder's vectors."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._embedder.dimension

    def tokens(self, texts: Sequence[str]) -> int:
        """Returns how many tokens the embedder reads of texts."""
        most = self._embedder.max_tokens
        return sum(min(most, self._embedder.count_tokens(text)) for text in texts)

    async def passages(self, texts: tuple[str, ...], deadline: float | None) -> Timed[Vectors]:
        """Embeds passages, a few at a time; what nobody waits for any more is not finished.

        Returns:
            float32 [texts, dimension], each row of length 1.

        Raises:
            Overloaded: Too many requests wait.
            DeadlineExceeded: The deadline passed.
            InferenceFailed: The model failed.
            NotReady: The daemon is shutting down.
        """
        return await self._embed(self._passages, texts, deadline)

    async def questions(self, texts: tuple[str, ...], deadline: float | None) -> Timed[Vectors]:
        """Embeds questions; as ``passages``."""
        with self._precedence.question():
            return await self._embed(self._questions, texts, deadline)

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        """Orders passages.

        Raises:
            Overloaded: Too many requests wait.
            DeadlineExceeded: The deadline passed.
            InferenceFailed: A model failed.
            NotReady: The daemon is shutting down.
        """
        with self._precedence.question(), self._place_for_reranking():
            return await self._rerank(request, deadline)

    def close(self) -> None:
        """Fails what waits, and what is in work after the texts that are just embedded, with NotReady."""
        self.closing.set()
        self._passages.close()
        self._questions.close()

    async def _embed(
        self, stage: Stage[_Texts, Vectors], texts: tuple[str, ...], deadline: float | None
    ) -> Timed[Vectors]:
        shed = threading.Event()
        try:
            return await asyncio.wrap_future(stage.submit(_Texts(texts, deadline, shed), deadline))
        finally:
            shed.set()

    @contextmanager
    def _place_for_reranking(self) -> Iterator[None]:
        if self._reranks >= self._limits.reranks:
            raise Overloaded("reranker", _RETRY_S)
        self._reranks += 1
        try:
            yield
        finally:
            self._reranks -= 1

    def _embed_passages(self, requests: Sequence[_Texts]) -> list[Vectors | Exception]:
        return [
            self._in_slices(request, self._embedder.embed, self._precedence.yield_to_queries) for request in requests
        ]

    def _embed_questions(self, requests: Sequence[_Texts]) -> list[Vectors | Exception]:
        embed = self._embedder.embed_questions
        if sum(len(request.texts) for request in requests) > _QUESTIONS_AT_ONCE:
            return [self._in_slices(request, embed, lambda took: None) for request in requests]
        try:
            vectors = embed([text for request in requests for text in request.texts])
        except EdgeRagError as error:
            return [error] * len(requests)
        ends = np.cumsum([len(request.texts) for request in requests])
        return list(np.split(vectors, ends[:-1]))

    def _in_slices(
        self, request: _Texts, embed: Callable[[Sequence[str]], Vectors], rest: Callable[[float], None]
    ) -> Vectors | Exception:
        """Embeds a few texts at a time; looks between two of them whether it is still wanted."""
        parts: list[Vectors] = []
        for first in range(0, len(request.texts), _TEXTS_AT_ONCE):
            began = self._clock()
            if self.closing.is_set():
                return NotReady("the daemon is shutting down")
            if request.shed.is_set():
                return RequestCancelled("the peer gave it up")
            if request.deadline is not None and began >= request.deadline:
                return DeadlineExceeded("embedder")
            try:
                parts.append(embed(request.texts[first : first + _TEXTS_AT_ONCE]))
            except EdgeRagError as error:
                return error
            rest(self._clock() - began)
        return np.concatenate(parts)
