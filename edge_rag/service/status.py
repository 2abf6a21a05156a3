"""The daemon's status, models, audit log, usage and backup, for operators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

import edge_rag
from edge_rag.core.identity import Role
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.alerts import BackupState
from edge_rag.core.monitoring.metrics import UsageReport
from edge_rag.core.monitoring.resources import MemoryPlanReport, MemoryPressureState, Temperature, Throttling
from edge_rag.core.monitoring.status import (
    Alert,
    BackupWay,
    CertificateInUse,
    CompletedBackup,
    DaemonState,
    DaemonStatus,
    LibraryDamage,
    ModelInUse,
    RemoteInUse,
    StageSnapshot,
    StoredBackup,
)
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.ingest.library import DocumentLibrary
from edge_rag.pipeline.ingest import Ingest
from edge_rag.pipeline.pipeline import Pipeline
from edge_rag.service.call import Call, Operation
from edge_rag.storage.documents import DocumentStore
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.audit_log import AuditPage

GET_STATUS: Final = Operation("GetStatus", Role.ADMIN)
WATCH_STATUS: Final = Operation("WatchStatus", Role.ADMIN, long=True)
LIST_AUDIT_EVENTS: Final = Operation("ListAuditEvents", Role.ADMIN, long=True)
LIST_MODELS: Final = Operation("ListModels", Role.ADMIN)
GET_USAGE: Final = Operation("GetUsage", Role.ADMIN)
USE_MODEL: Final = Operation("UseModel", Role.ADMIN, long=True)
BACKUP: Final = Operation("Backup", Role.ADMIN, long=True)
MAKE_BACKUP: Final = Operation("MakeBackup", Role.ADMIN, long=True)
LIST_BACKUPS: Final = Operation("ListBackups", Role.ADMIN)
READ_BACKUP: Final = Operation("ReadBackup", Role.ADMIN, long=True)
DELETE_BACKUP: Final = Operation("DeleteBackup", Role.ADMIN)


async def get_status(call: Call) -> DaemonStatus:
    return await asyncio.to_thread(call.backend.status)


async def models(call: Call) -> tuple[ModelInUse, ...]:
    return (await get_status(call)).models


async def watch_status(call: Call, interval_s: float) -> AsyncGenerator[DaemonStatus, None]:
    """Yields the daemon's status now and after every interval, seconds; ends with the status of the shutdown."""
    while True:
        status = await get_status(call)
        yield status
        if status.state is DaemonState.DRAINING:
            return
        await call.context.lifecycle.drains_within(interval_s)


def audit_page(call: Call, request_id: RequestId | None, before: int | None, limit: int) -> AuditPage:
    """Returns audit events of the past, the latest ones.

    Args:
        request_id: Only events of this request; None for all.
        before: Number of the event that they come before; None for the latest ones of all.
    """
    return call.backend.audit.entries(request_id, limit=limit, before=before)


async def audit_events(
    call: Call, request_id: RequestId | None, limit: int | None, follow: bool, after: int = 0
) -> AsyncGenerator[AuditPage, None]:
    """Yields audit events in pages.

    Args:
        request_id: Only events of this request; None for all.
        limit: Most events of the past, the latest ones; None for all.
        follow: Whether to continue with new events until the daemon shuts down.
        after: Number of the event after which to start; 0 starts with the first one.
    """
    audit = call.backend.audit
    page = audit.entries(request_id, after, limit)
    yield page
    if follow:
        async with aclosing(audit.follow(page.last, request_id)) as pages:
            async for page in pages:
                yield page


def usage(call: Call) -> UsageReport:
    return UsageReport(call.backend.usage.since, tuple(call.backend.usage.read()), call.context.quotas.read())


async def use_model(call: Call, role: str, name: str) -> ModelInUse:
    return await asyncio.shield(asyncio.to_thread(call.backend.use_model, role, name))


async def backup(call: Call) -> AsyncGenerator[bytes, None]:
    size_bytes = 0
    async with aclosing(_in_thread(await asyncio.to_thread(call.backend.backup))) as chunks:
        async for chunk in chunks:
            yield chunk
            size_bytes += len(chunk)
    await asyncio.to_thread(call.backend.backups.completed, size_bytes, BackupWay.SENT)


async def make_backup(call: Call) -> StoredBackup:
    """Makes a backup on the box, where a bounded number of them is kept."""
    cancelled = threading.Event()

    def make() -> StoredBackup:
        chunks = call.backend.backup()
        try:
            return call.backend.backups.store(chunks, cancelled.is_set)
        finally:
            _close(chunks)

    try:
        return await asyncio.to_thread(make)
    finally:
        cancelled.set()


async def list_backups(call: Call) -> tuple[StoredBackup, ...]:
    """Returns the backups on the box, the newest first."""
    return await asyncio.to_thread(call.backend.backups.list)


async def read_backup(call: Call, name: str) -> AsyncGenerator[bytes, None]:
    async with aclosing(_in_thread(await asyncio.to_thread(call.backend.backups.read, name))) as chunks:
        async for chunk in chunks:
            yield chunk


async def delete_backup(call: Call, name: str) -> StoredBackup:
    return await asyncio.to_thread(call.backend.backups.delete, name)


async def _in_thread(chunks: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yields chunks that a thread makes, one at a time."""
    try:
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk
    finally:
        await asyncio.shield(asyncio.to_thread(_close, chunks))


def _close(chunks: Iterator[bytes]) -> None:
    if isinstance(chunks, Generator):
        chunks.close()


@dataclass(frozen=True, slots=True)
class StatusCollector:
    """Collects the daemon's status from its parts.

    Attributes:
        http_address: URL of the HTTP server; empty without it.
        console_address: URL of the console; empty if it is not served.
        damage: The damage to the library; None if undamaged.
    """

    pipeline: Pipeline
    generator: ModelSwapper
    ingest: Ingest
    library: DocumentLibrary
    documents: DocumentStore
    latencies: Latencies
    activity: Activity
    temperatures: Callable[[], tuple[Temperature, ...]]
    throttling: Callable[[], Throttling]
    memory: MemoryPlanReport
    pressure: Callable[[], MemoryPressureState]
    models: Callable[[], tuple[ModelInUse, ...]]
    remotes: Callable[[], tuple[RemoteInUse, ...]]
    profile: str
    data_directory: Path
    address: str
    http_address: str
    console_address: str
    started_at: datetime
    damage: LibraryDamage | None
    certificates: Callable[[], tuple[CertificateInUse, ...]]
    last_backup: Callable[[], CompletedBackup | None]
    scheduled: Callable[[], BackupState]
    alerts: Callable[[], tuple[Alert, ...]]

    def status(self, state: DaemonState) -> DaemonStatus:
        """Returns the status; reads the number of documents from the database."""
        installed = self.generator.current
        engine, running = self.generator.stats(), installed.generator.engine.snapshot()
        return DaemonStatus(
            version=edge_rag.__version__,
            state=state,
            started_at=self.started_at,
            data_directory=self.data_directory,
            profile=self.profile,
            models=self.models(),
            stages=self.stages(),
            engine=replace(
                engine,
                kv_bytes=engine.pages * installed.page_bytes,
                generated_per_s=self.activity.generated.per_second(),
                computed_per_s=self.activity.computed.per_second(),
                sequences=running.sequences,
                page_map=running.page_map,
            ),
            collections=self.documents.document_counts(),
            indexes=self.library.indexes(),
            resident_bytes=psutil.Process().memory_info().rss,
            address=self.address,
            http_address=self.http_address,
            console_address=self.console_address,
            latencies=self.latencies.read(),
            devices=self.activity.devices(),
            temperatures=self.temperatures(),
            remotes=self.remotes(),
            throttling=self.throttling(),
            memory=self.memory,
            pressure=self.pressure(),
            damage=self.damage,
            certificates=self.certificates(),
            last_backup=self.last_backup(),
            next_backup=self.scheduled().next_at,
            alerts=self.alerts(),
        )

    def stages(self) -> tuple[StageSnapshot, ...]:
        """Returns the stages in pipeline order, ingest last."""
        engine = self.generator.stats()
        generator = StageSnapshot(
            "generator",
            engine.waiting,
            engine.queue_capacity,
            engine.slots_busy,
            engine.completed + engine.failed,
            engine.refused,
        )
        stages = (*self.pipeline.snapshots(), generator, self.ingest.snapshot())
        return tuple(
            self.latencies.of_stage(replace(stage, busy=self.activity.stage_share(stage.name))) for stage in stages
        )
