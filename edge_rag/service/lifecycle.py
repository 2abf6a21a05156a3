"""The daemon's lifecycle: its backend, whether it is ready, and how many calls are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, ModelInUse
from edge_rag.errors import NotReady
from edge_rag.generator.constraints.format_check import FormatChecker
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.model_store.manager import ModelManager
from edge_rag.pipeline.ingest import Ingest
from edge_rag.pipeline.page_service import PageService
from edge_rag.pipeline.pipeline import Pipeline
from edge_rag.pipeline.shared_encoders import EncoderService
from edge_rag.storage.assessment.evaluation import EvaluationStore
from edge_rag.storage.assessment.feedback import FeedbackStore
from edge_rag.storage.collections import CollectionStore
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.recovery.stored_backups import StoredBackups
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.uploads.attachments import AttachmentStore
from edge_rag.storage.uploads.files import FileStore
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.usage import UsageMeter


@dataclass(frozen=True, slots=True)
class Backend:
    """The parts that operations use.

    Attributes:
        document_bytes: Largest document, bytes.
        use_model: Fills a role with another model while running, both given by name.
        backup: Makes a backup, chunk by chunk; the first chunk comes after all data has been checked.
    """

    pipeline: Pipeline
    ingest: Ingest
    library: DocumentLibrary
    documents: DocumentStore
    spool: Spool
    files: FileStore
    attachments: AttachmentStore
    document_bytes: int
    status: Callable[[], DaemonStatus]
    audit: AuditLog
    usage: UsageMeter
    use_model: Callable[[str, str], ModelInUse]
    backup: Callable[[], Iterator[bytes]]
    backups: StoredBackups
    collections: CollectionStore
    generator: ModelSwapper
    encoders: EncoderService
    formats: FormatChecker
    pages: PageService
    feedback: FeedbackStore
    evaluation: EvaluationStore
    models: ModelManager


class Lifecycle:
    """Readiness of the daemon and the count of calls in flight. Used from one event loop."""

    def __init__(self) -> None:
        self._state = DaemonState.STARTING
        self._backend: Backend | None = None
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = asyncio.Event()

    @property
    def state(self) -> DaemonState:
        return self._state

    @property
    def draining(self) -> bool:
        return self._state is DaemonState.DRAINING

    def open(self, backend: Backend, *, recovery: bool = False) -> None:
        """Starts serving.

        Args:
            recovery: Whether the backend is only the intact part of a damaged library.
        """
        self._backend = backend
        self._state = DaemonState.RECOVERY if recovery else DaemonState.SERVING

    def drain(self) -> None:
        self._state = DaemonState.DRAINING
        self._draining.set()

    async def drains_within(self, seconds: float) -> bool:
        """Waits for that time or until the daemon drains; returns whether it does."""
        try:
            await asyncio.wait_for(self._draining.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def drained(self) -> None:
        await self._idle.wait()

    def acquire(self) -> Backend:
        """Counts a call as in flight; pair it with ``release``."""
        if self._backend is None:
            raise NotReady("the daemon is starting; try again in a moment")
        if self.draining:
            raise NotReady("the daemon is shutting down")
        self._in_flight += 1
        self._idle.clear()
        return self._backend

    def release(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle.set()
