"""A box that offloads encoding over real gRPC, composed as in the daemon."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.ingest.embedding import BATCH_TEXTS
from edge_rag.offload.context import LoopThread, RemoteRegistry
from edge_rag.offload.encoding.client import EncoderOffload, EncoderState
from edge_rag.offload.encoding.embedding import OffloadingEmbedding
from edge_rag.offload.encoding.events import EncoderEventRecorder
from edge_rag.offload.ports import EncoderModels
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.offload.remotes.edge_rag import EdgeRagEncoders, EdgeRagRemote
from edge_rag.offload.remotes.remote_state import RemoteState
from edge_rag.offload.remotes.tls_trust import Trust
from edge_rag.runtime.encoder.text_encoder import TextEncoder

EMBEDDER = Path(__file__).parents[2] / "models" / "minilm-l6"

ALWAYS_CLOSED = CircuitBreaker(threshold=10_000)
"""Allows every request."""


class AuditRecorder:
    """Keeps audit events."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self._another = threading.Condition()

    def record(self, event: AuditEvent) -> None:
        with self._another:
            self.events.append(event)
            self._another.notify_all()

    def wait_for(self, many: int) -> None:
        with self._another:
            assert self._another.wait_for(lambda: len(self.events) >= many, 30)

    @property
    def kinds(self) -> Counter[AuditEventKind | Unrecognized]:
        return Counter(event.kind for event in self.events)


@dataclass(frozen=True)
class OffloadingBox:
    """A box with a local encoder and remotes."""

    local: TextEncoder
    offload: EncoderOffload
    embedding: OffloadingEmbedding
    audit: AuditRecorder
    states: dict[str, RemoteState]

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule] = lambda: OffloadRule.ALLOWED,
        local_embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> NDArray[np.float32]:
        return self.embedding.passages(texts, rule, local_embed or self.local.embed, lambda took: None, on_progress)


@contextmanager
def offloading(
    local: TextEncoder,
    addresses: Sequence[str],
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    *,
    trust: Trust | None = None,
    timeout_s: float = 60.0,
    breaker: CircuitBreaker = ALWAYS_CLOSED,
) -> Iterator[OffloadingBox]:
    """Uses the encoders of remotes ``m0``, ``m1``, ... at addresses; a call takes at most ``timeout_s`` seconds."""
    audit, uses = AuditRecorder(), frozenset({OffloadUse.EMBED})
    remotes = [EdgeRagRemote(f"m{number}", address, trust or Trust(), uses) for number, address in enumerate(addresses)]
    states = {remote.name: RemoteState(remote, breaker) for remote in remotes}
    loop = LoopThread()
    registry = RemoteRegistry(states, audit, time.monotonic)
    loop.start()
    models = EncoderModels(local.name, local.dimension)
    encoders = {
        remote.name: EncoderState(states[remote.name], EdgeRagEncoders(remote.connection)) for remote in remotes
    }
    events = EncoderEventRecorder(audit)
    offload = EncoderOffload(loop, registry, models, events, encoders, mode, timeout_s, lambda: False)
    embedding = OffloadingEmbedding(offload, BATCH_TEXTS)
    try:
        yield OffloadingBox(local, offload, embedding, audit, states)
    finally:
        loop.stop(registry.close)
