from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.core.passage import Reranked, RerankRequest, Retrieved
from edge_rag.errors import DeadlineExceeded, InferenceFailed, NotReady, Overloaded
from edge_rag.pipeline.shared_encoders import EncoderService, EncoderServiceLimits
from edge_rag.pipeline.stage import Timed
from edge_rag.pipeline.yield_to_queries import IngestYield


class Counting:
    """An embedder that says how long each text is, and may be held up in the middle."""

    name, dimension, max_tokens = "counting", 1, 4

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.let_go.set()

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if "\ud800" in texts:
            raise InferenceFailed("no text")
        self.batches.append(len(texts))
        self.begun.set()
        assert self.let_go.wait(30)
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(questions)


class Ranking:
    """Ranks once it is let to."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        await self.let_go.wait()
        return Timed(Reranked((), 0.5), 0.0, 0.0)


@contextmanager
def lending(
    embedder: Counting, rerank: Any = None, limits: EncoderServiceLimits | None = None
) -> Iterator[EncoderService]:
    made = EncoderService(embedder, "ranks", rerank, IngestYield(), limits)
    try:
        yield made
    finally:
        embedder.let_go.set()
        made.close()


def test_vectors_come_in_order_and_passages_a_few_at_a_time() -> None:
    embedder = Counting()
    with lending(embedder) as lent:

        async def run() -> None:
            texts = tuple("x" * n for n in range(20))
            for embed in (lent.embed_passages, lent.embed_questions):
                vectors = (await embed(texts, None)).value
                assert vectors[:, 0].tolist() == list(range(20))

        asyncio.run(run())
    assert embedder.batches == [8, 8, 4] * 2


def test_questions_of_several_peers_share_a_run_and_each_gets_its_own() -> None:
    embedder = Counting()
    embedder.let_go.clear()
    with lending(embedder) as lent:

        async def run() -> None:
            first = asyncio.create_task(lent.embed_questions(("a",), None))
            await asyncio.to_thread(embedder.begun.wait, 30)
            rest = [asyncio.create_task(lent.embed_questions(("b" * n, "c" * n), None)) for n in (2, 3)]
            await asyncio.sleep(0)
            embedder.let_go.set()
            assert (await first).value.tolist() == [[1]]
            assert [(await each).value.tolist() for each in rest] == [[[2], [2]], [[3], [3]]]

        asyncio.run(run())
    assert embedder.batches == [1, 4]


def test_what_nobody_waits_for_any_more_is_not_finished() -> None:
    embedder = Counting()
    embedder.let_go.clear()
    with lending(embedder) as lent:

        async def run() -> None:
            waiting = asyncio.create_task(lent.embed_passages(("a",) * 80, None))
            await asyncio.to_thread(embedder.begun.wait, 30)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            embedder.let_go.set()
            assert (await lent.embed_passages(("b",), None)).value.tolist() == [[1]]

        asyncio.run(run())
    assert embedder.batches == [8, 1]


def test_a_passed_deadline_and_a_failing_model_end_a_request_with_their_errors() -> None:
    embedder = Counting()
    with lending(embedder) as lent:

        async def run() -> None:
            with pytest.raises(DeadlineExceeded):
                await lent.embed_passages(("a",), time.monotonic() - 1)
            for embed in (lent.embed_passages, lent.embed_questions):
                with pytest.raises(InferenceFailed):
                    await embed(("\ud800",), None)

        asyncio.run(run())


def test_more_than_may_wait_is_refused() -> None:
    embedder, ranking = Counting(), Ranking()
    embedder.let_go.clear()
    with lending(embedder, ranking.rerank, EncoderServiceLimits(passages=1, questions=1, reranks=2)) as lent:

        async def run() -> None:
            begun = asyncio.create_task(lent.embed_passages(("a",), None))
            await asyncio.to_thread(embedder.begun.wait, 30)
            waiting = asyncio.create_task(lent.embed_passages(("a",), None))
            request = RerankRequest("?", Retrieved(()), 1)
            ranks = [asyncio.create_task(lent.rerank(request, None)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await lent.embed_passages(("a",), None)
            with pytest.raises(Overloaded):
                await lent.rerank(request, None)
            embedder.let_go.set()
            ranking.let_go.set()
            await asyncio.gather(begun, waiting, *ranks)
            assert (await lent.rerank(request, None)).value.evidence == 0.5

        asyncio.run(run())


def test_the_end_of_the_daemon_waits_for_no_long_request() -> None:
    embedder = Counting()
    embedder.let_go.clear()

    async def run() -> None:
        waiting = asyncio.create_task(lent.embed_passages(("a",) * 80, None))
        await asyncio.to_thread(embedder.begun.wait, 30)
        closing = asyncio.create_task(asyncio.to_thread(lent.close))
        await asyncio.to_thread(lent.closing.wait, 30)
        embedder.let_go.set()
        with pytest.raises(NotReady):
            await waiting
        await closing

    with lending(embedder) as lent:
        asyncio.run(run())
    assert embedder.batches == [8]


def test_only_what_the_model_reads_counts() -> None:
    with lending(Counting()) as lent:
        assert lent.count_tokens(["ab", "abcdefgh", ""]) == 6


def test_after_the_end_nothing_is_taken() -> None:
    lent = EncoderService(Counting(), "ranks", Ranking().rerank, IngestYield())
    lent.close()

    async def run() -> None:
        with pytest.raises(NotReady):
            await lent.embed_passages(("a",), None)

    asyncio.run(run())
