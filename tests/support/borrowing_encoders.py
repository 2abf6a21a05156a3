"""A box that borrows others' encoders, over real gRPC, as the daemon puts it together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.passage import Reranked, RerankRequest
from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.core.query import NO_CONTEXT, Question, RequestContext
from edge_rag.ingest.embedding import TEXTS_AT_ONCE
from edge_rag.offload.context import LoopThread
from edge_rag.offload.encoding.client import EncoderCaller, EncoderOffload, Encoders, EncoderState
from edge_rag.offload.encoding.embedder import OffloadingEmbedding
from edge_rag.offload.encoding.reranker import OffloadingReranker
from edge_rag.offload.events import EncodingAnnouncer, OffloadAnnouncer
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.edge_rag import EdgeRagEncoders, EdgeRagRemote
from edge_rag.offload.remotes.remote_state import RemoteState
from edge_rag.offload.remotes.tls_trust import Trust
from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.max_sim import METHOD
from edge_rag.runtime.encoder.text_encoder import TextEncoder

EMBEDDER = Path(__file__).parents[2] / "models" / "minilm-l6"

PATIENT = Breaker(threshold=10_000)
"""Lets every request through."""


class Trail:
    """Keeps decisions."""

    def __init__(self) -> None:
        self.decisions: list[AuditEvent] = []
        self._another = threading.Condition()

    def record(self, decision: AuditEvent) -> None:
        with self._another:
            self.decisions.append(decision)
            self._another.notify_all()

    def wait_for(self, many: int) -> None:
        """Waits until so many were taken."""
        with self._another:
            assert self._another.wait_for(lambda: len(self.decisions) >= many, 30)

    @property
    def kinds(self) -> Counter[AuditEventKind | Unrecognized]:
        return Counter(decision.kind for decision in self.decisions)


@dataclass(frozen=True)
class Borrower:
    """A box with an encoder of its own that borrows.

    Attributes:
        own: Its encoder.
        loan: What it borrows.
        embedding: Embeds.
        reranker: Orders passages.
        trail: What was decided.
        desks: The machines.
    """

    own: TextEncoder
    loan: EncoderOffload
    embedding: OffloadingEmbedding
    reranker: OffloadingReranker
    trail: Trail
    desks: dict[str, RemoteState]

    def questions(
        self, texts: Sequence[str], rule: OffloadRule = OffloadRule.ALLOWED, context: RequestContext = NO_CONTEXT
    ) -> NDArray[np.float32]:
        return self.embedding.questions([Question(text, rule, context) for text in texts])

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule] = lambda: OffloadRule.ALLOWED,
        here: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
        told: Callable[[int], None] = lambda done: None,
    ) -> NDArray[np.float32]:
        return self.embedding.passages(texts, rule, here or self.own.embed, lambda took: None, told)

    def rank(
        self,
        requests: Sequence[RerankRequest],
        rule: OffloadRule = OffloadRule.ALLOWED,
        context: RequestContext = NO_CONTEXT,
    ) -> list[Reranked]:
        return self.reranker.rerank(
            [replace(each, retrieved=replace(each.retrieved, offload=rule), context=context) for each in requests]
        )


@contextmanager
def borrowing(
    own: TextEncoder,
    reranker: Reranker,
    addresses: Sequence[str],
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    *,
    trust: Trust | None = None,
    named: str = "",
    longest_s: float = 60.0,
    breaker: Breaker = PATIENT,
    models: Encoders | None = None,
) -> Iterator[Borrower]:
    """Borrows the encoders of machines ``m0``, ``m1``, ... at addresses.

    Args:
        own: This box's encoder.
        reranker: This box's reranker.
        addresses: Where the machines are.
        mode: When they are asked.
        trust: What they have to show.
        named: Names the reranker's scores; max-sim over ``own`` where that is not said.
        longest_s: Longest time that one is waited for, seconds.
        breaker: As each machine's begins.
        models: What this box's models are said to be; what they are where that is not said.
    """
    trail, uses = Trail(), frozenset({OffloadUse.EMBED, OffloadUse.RERANK})
    remotes = [EdgeRagRemote(f"m{number}", address, trust or Trust(), uses) for number, address in enumerate(addresses)]
    desks = {remote.name: RemoteState(remote, breaker) for remote in remotes}
    dispatch = LoopThread(desks, OffloadAnnouncer(trail), time.monotonic)
    dispatch.start()
    models = models or Encoders(own.name, own.dimension, named or f"{METHOD} {own.name}")
    encoding = {remote.name: EncoderState(desks[remote.name], EdgeRagEncoders(remote.connection)) for remote in remotes}
    loan = EncoderOffload(
        EncoderCaller(dispatch, models, EncodingAnnouncer(trail)), encoding, mode, longest_s, lambda: False
    )
    embedding = OffloadingEmbedding(loan, own.embed_questions, TEXTS_AT_ONCE)
    ranking = OffloadingReranker(loan, reranker)
    try:
        yield Borrower(own, loan, embedding, ranking, trail, desks)
    finally:
        embedding.close()
        ranking.close()
        dispatch.stop()
