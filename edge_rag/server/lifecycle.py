"""What stands between a call and the rooms behind it: the daemon's state, and what it serves once it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, ModelInUse
from edge_rag.errors import NotReady
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.pipeline.ingest import IngestStage, IngestWorker
from edge_rag.pipeline.pipeline import Pipeline
from edge_rag.pipeline.ports import CollectionLibrary, DocumentLibrary
from edge_rag.pipeline.shared_encoders import EncoderService
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.usage import UsageMeter


@dataclass(frozen=True, slots=True)
class Backend:
    """What the services serve.

    Attributes:
        pipeline: The query path.
        ingesting: The ingest stage.
        jobs: Ingest as jobs.
        library: Documents, for reading and deleting.
        status: Reports on the daemon.
        trail: Decisions about questions.
        usage: What clients used.
        use_model: Puts another model, given by its name, in a role while running.
        backup: Makes a backup, piece by piece; the first piece comes once all of it has been checked.
        collections: Collections.
        generator: This machine's generator.
        lending: Lends this machine's encoders.
    """

    pipeline: Pipeline
    ingesting: IngestStage
    jobs: IngestWorker
    library: DocumentLibrary
    status: Callable[[], DaemonStatus]
    trail: AuditLog
    usage: UsageMeter
    use_model: Callable[[str, str], ModelInUse]
    backup: Callable[[], Iterator[bytes]]
    collections: CollectionLibrary
    generator: ModelSwapper
    lending: EncoderService


class Lifecycle:
    """Closed while starting and draining, open in between. Used from one event loop."""

    def __init__(self) -> None:
        self._state = DaemonState.STARTING
        self._backend: Backend | None = None
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = asyncio.Event()

    @property
    def state(self) -> DaemonState:
        """Where the daemon is in its life."""
        return self._state

    @property
    def draining(self) -> bool:
        """Whether the daemon is about to end."""
        return self._state is DaemonState.DRAINING

    def open(self, backend: Backend) -> None:
        """Lets calls through."""
        self._backend = backend
        self._state = DaemonState.SERVING

    def drain(self) -> None:
        """Refuses new calls; those let through go on."""
        self._state = DaemonState.DRAINING
        self._draining.set()

    async def drains_within(self, seconds: float) -> bool:
        """Waits so long, or until the daemon drains; returns whether it does."""
        try:
            await asyncio.wait_for(self._draining.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def idle(self) -> None:
        """Waits until no call is inside."""
        await self._idle.wait()

    def enter(self) -> Backend:
        """Lets a call through; pair it with ``leave``.

        Raises:
            NotReady: The daemon is starting or draining.
        """
        if self._backend is None:
            raise NotReady("the daemon is starting; try again in a moment")
        if self.draining:
            raise NotReady("the daemon is shutting down")
        self._calls += 1
        self._idle.clear()
        return self._backend

    def leave(self) -> None:
        """Ends a call that ``enter`` let through."""
        self._calls -= 1
        if self._calls == 0:
            self._idle.set()
