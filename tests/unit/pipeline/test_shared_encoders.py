import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.core.passage import Reranked, RerankRequest, Retrieved
from edge_rag.core.query import RequestContext
from edge_rag.errors import DeadlineExceeded, InferenceFailed, NotReady, Overloaded
from edge_rag.pipeline.shared_encoders import EncoderService, EncoderServiceLimits
from edge_rag.pipeline.stage import Timed
from edge_rag.pipeline.yield_to_queries import IngestYield


class Counting:
    """An embedder whose vectors are the lengths of texts; it can be blocked in the middle of a batch."""

    name, dimension, max_tokens = "counting", 1, 4

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.begun = threading.Event()
        self.unblocked = threading.Event()
        self.unblocked.set()

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if "\ud800" in texts:
            raise InferenceFailed("no text")
        self.batches.append(len(texts))
        self.begun.set()
        assert self.unblocked.wait(30)
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(questions)


PEER = RequestContext(client="peer")


class Ranking:
    """A reranker that can be blocked."""

    def __init__(self) -> None:
        self.unblocked = asyncio.Event()

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        await self.unblocked.wait()
        return Timed(Reranked((), 0.5), 0.0, 0.0)


@contextmanager
def open_service(
    embedder: Counting, rerank: Any = None, limits: EncoderServiceLimits | None = None
) -> Iterator[EncoderService]:
    made = EncoderService(embedder, "ranks", rerank, IngestYield(), limits)
    try:
        yield made
    finally:
        embedder.unblocked.set()
        made.close()


async def test_vectors_are_in_order_and_passages_are_embedded_in_slices() -> None:
    embedder = Counting()
    with open_service(embedder) as service:
        texts = tuple("x" * n for n in range(20))
        for embed in (service.embed_passages, service.embed_questions):
            vectors = (await embed(texts, PEER)).value
            assert vectors[:, 0].tolist() == list(range(20))
    assert embedder.batches == [8, 8, 4] * 2


async def test_questions_of_several_peers_share_a_batch_and_each_gets_its_own_vectors() -> None:
    embedder = Counting()
    embedder.unblocked.clear()
    with open_service(embedder) as service:
        first = asyncio.create_task(service.embed_questions(("a",), PEER))
        await asyncio.to_thread(embedder.begun.wait, 30)
        rest = [asyncio.create_task(service.embed_questions(("b" * n, "c" * n), PEER)) for n in (2, 3)]
        await asyncio.sleep(0)
        embedder.unblocked.set()
        assert (await first).value.tolist() == [[1]]
        assert [(await each).value.tolist() for each in rest] == [[[2], [2]], [[3], [3]]]
    assert embedder.batches == [1, 4]


async def test_a_cancelled_request_ends_after_its_current_slice() -> None:
    embedder = Counting()
    embedder.unblocked.clear()
    with open_service(embedder) as service:
        waiting = asyncio.create_task(service.embed_passages(("a",) * 80, PEER))
        await asyncio.to_thread(embedder.begun.wait, 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        embedder.unblocked.set()
        assert (await service.embed_passages(("b",), PEER)).value.tolist() == [[1]]
    assert embedder.batches == [8, 1]


async def test_a_passed_deadline_and_a_failing_model_end_a_request_with_their_errors() -> None:
    embedder = Counting()
    with open_service(embedder) as service:
        with pytest.raises(DeadlineExceeded):
            await service.embed_passages(("a",), replace(PEER, deadline=time.monotonic() - 1))
        for embed in (service.embed_passages, service.embed_questions):
            with pytest.raises(InferenceFailed):
                await embed(("\ud800",), PEER)


async def test_a_full_queue_refuses_further_requests() -> None:
    embedder, ranking = Counting(), Ranking()
    embedder.unblocked.clear()
    with open_service(embedder, ranking.rerank, EncoderServiceLimits(passages=1, questions=1, reranks=2)) as service:
        begun = asyncio.create_task(service.embed_passages(("a",), PEER))
        await asyncio.to_thread(embedder.begun.wait, 30)
        waiting = asyncio.create_task(service.embed_passages(("a",), PEER))
        request = RerankRequest("?", Retrieved(()), 1, PEER)
        ranks = [asyncio.create_task(service.rerank(request, None)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await service.embed_passages(("a",), PEER)
        with pytest.raises(Overloaded):
            await service.rerank(request, None)
        embedder.unblocked.set()
        ranking.unblocked.set()
        await asyncio.gather(begun, waiting, *ranks)
        assert (await service.rerank(request, None)).value.evidence == 0.5


async def test_closing_does_not_wait_for_a_long_request() -> None:
    embedder = Counting()
    embedder.unblocked.clear()
    with open_service(embedder) as service:
        waiting = asyncio.create_task(service.embed_passages(("a",) * 80, PEER))
        await asyncio.to_thread(embedder.begun.wait, 30)
        closing = asyncio.create_task(asyncio.to_thread(service.close))
        await asyncio.to_thread(service.closing.wait, 30)
        embedder.unblocked.set()
        with pytest.raises(NotReady):
            await waiting
        await closing
    assert embedder.batches == [8]


def test_only_tokens_that_the_model_reads_are_counted() -> None:
    with open_service(Counting()) as service:
        assert service.count_tokens(["ab", "abcdefgh", ""]) == 6
