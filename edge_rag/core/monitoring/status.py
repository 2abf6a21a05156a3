"""The status report of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum
from pathlib import Path

from edge_rag.core.ids import RequestId, Unrecognized
from edge_rag.core.monitoring.metrics import Latency
from edge_rag.core.monitoring.resources import MemoryPlanReport, MemoryPressureState, Temperature, Throttling
from edge_rag.core.placement import Placement
from edge_rag.core.query import Priority


class DaemonState(Enum):
    """State of the daemon."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class LibraryDamage:
    """Why the daemon is in recovery mode: it serves the intact part of a damaged library, and changes nothing.

    Attributes:
        problem: The damage, and what to do.
        kept: Documents that are whole.
        rebuilt: Documents with parts that were rebuilt from others.
        lost: Unreadable documents, as far as they are known.
        lost_documents: The first of these, as ``COLLECTION/NAME``.
    """

    problem: str
    kept: int
    rebuilt: int
    lost: int
    lost_documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelInUse:
    """A model that fills a role."""

    name: str
    detail: str
    placement: Placement

    @property
    def role(self) -> str:
        """``embedder``, ``reranker`` or ``generator``."""
        return self.placement.stage.value


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    """A stage at one moment.

    Attributes:
        name: Name of the stage.
        waiting: Requests in its queue.
        capacity: Most requests in its queue.
        running: Requests being processed.
        completed: Requests processed since start, failed ones included.
        refused: Requests refused because the queue was full, since start.
        busy: Share of the last 5 seconds in which it computed, 0 to 1.
        p50_s: Median of the time that the latest answers spent in it and in its queue, seconds; None without any.
        p95_s: 95th percentile of that.
        p99_s: 99th percentile of that.
    """

    name: str
    waiting: int
    capacity: int
    running: int
    completed: int
    refused: int
    busy: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Use of one device by the stages.

    Attributes:
        name: ``cpu``, ``gpu``, ``npu``, or the name of the execution provider.
        busy: Share of the last 5 seconds in which at least one stage computed on it, 0 to 1.
        stages: Stages that have computed on it since start.
    """

    name: str
    busy: float
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A running request, without its text.

    Attributes:
        request_id: Id of the request.
        client: Its client.
        priority: Its scheduling class.
        age_s: Time since submission to the engine, seconds.
        prompt_tokens: Length of its prompt.
        cached_tokens: Prompt tokens found in the prefix cache.
        computed_tokens: Tokens whose KV is in the cache.
        generated_tokens: Tokens generated so far.
        max_tokens: Most tokens it may generate.
        pages: Pages it holds.
        preemptions: Times it was preempted.
    """

    request_id: RequestId
    client: str
    priority: Priority
    age_s: float
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    generated_tokens: int
    max_tokens: int
    pages: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class PageMap:
    """Holders of the KV pages, cell by cell in order of page numbers.

    Attributes:
        cell_pages: Pages per cell, at least 1; the last cell may have fewer.
        held: Pages of each cell held by one sequence.
        shared: Pages held by several sequences.
        cached: Pages without a holder whose content can still be found; the rest is free.
    """

    cell_pages: int
    held: tuple[int, ...]
    shared: tuple[int, ...]
    cached: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Counters of an engine, since the start.

    A new counter is a field here, its increment in the engine, and a field of that name in ``Engine`` of
    ``admin.proto``; everything between copies by name.

    Attributes:
        steps: Model runs.
        prefill_tokens: Tokens computed in chunks of more than one.
        decode_tokens: Tokens computed one at a time.
        generated_tokens: Tokens generated, forced ones included.
        preemptions: Times a running sequence was preempted.
        completed: Requests that ended well.
        failed: Requests that ended badly, cancelled ones included.
        refused: Requests refused because the queue was full.
    """

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    completed: int = 0
    failed: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats(EngineCounters):
    """The engine's batch, queue and KV cache at a step boundary. The names are those of ``Engine`` in ``admin.proto``.

    Attributes:
        slots: Sequences that can run at once.
        slots_busy: Sequences that run.
        waiting: Requests that have had no slot yet.
        queue_capacity: Most requests that may wait.
        pages: Pages of the KV cache.
        pages_used: Pages that sequences hold.
        pages_cached: Pages without a holder whose content can still be found.
        page_tokens: Tokens a page holds.
        kv_bytes: KV memory over all layers, bytes.
        generated_per_s: Tokens generated a second, over the last 5 seconds.
        computed_per_s: Tokens computed a second, prompts included, over the last 5 seconds.
        sequences: The running sequences, best rank first.
        page_map: Holders of the pages.
    """

    slots: int
    slots_busy: int
    pages: int
    pages_used: int
    pages_cached: int
    page_tokens: int
    waiting: int = 0
    queue_capacity: int = 0
    kv_bytes: int = 0
    generated_per_s: float = 0.0
    computed_per_s: float = 0.0
    sequences: tuple[SlotUse, ...] = ()
    page_map: PageMap = PageMap(1, (), (), ())

    def plus_counters(self, earlier: EngineCounters) -> EngineStats:
        """Returns these stats with the counters of the engine that this one replaced added."""
        names = (each.name for each in fields(EngineCounters))
        return replace(self, **{name: getattr(self, name) + getattr(earlier, name) for name in names})


class IndexKind(Enum):
    """How the vectors of a collection are searched."""

    EXACT = "exact"
    SEGMENT = "ivf-sq8"
    MILVUS = "milvus"


@dataclass(frozen=True, slots=True)
class IndexInUse:
    """The vector index of a collection at one moment.

    Attributes:
        collection: Name of the collection.
        kind: How it is searched.
        vectors: Vectors that can be found; None if a server does not report it.
        unindexed: Vectors of these that are searched exactly beside a segment.
        size_bytes: Size of the segment's file; 0 without one.
        recall: Share of the 10 exact nearest neighbours that searches of the segment found when it was built, 0 to 1;
            None without a segment.
        built_at: Time of the segment's build, UTC; None without one.
        build_s: Duration of that build, seconds; None without one.
        pending: Whether a segment is being built, or a server is being updated.
    """

    collection: str
    kind: IndexKind | Unrecognized
    vectors: int | None
    unindexed: int = 0
    size_bytes: int = 0
    recall: float | None = None
    built_at: datetime | None = None
    build_s: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class RemoteInUse:
    """Another machine that may compute for this one, at one moment.

    Attributes:
        name: Its configured name.
        kind: ``edge-rag`` or ``openai``.
        address: Its address.
        breaker: ``closed`` if it is used, ``open`` if it is not used after failures, ``half_open`` while one request
            tests it.
        in_flight: Requests sent to it that have not ended.
        answers: Answers it finished since start.
        failures: Times it failed, was too slow or sent an invalid result, since start.
        sent_bytes: Bytes sent to it since start.
        last_problem: Its latest failure; empty if there was none.
        answer_s: Mean time of its answers without waiting, seconds; None without a measurement.
        uses: Its uses: ``generate``, ``embed``, ``rerank``.
        embedded_texts: Texts it embedded since start.
    """

    name: str
    kind: str
    address: str
    breaker: str
    in_flight: int
    answers: int
    failures: int
    sent_bytes: int
    last_problem: str
    answer_s: float | None
    uses: tuple[str, ...] = ("generate",)
    embedded_texts: int = 0


@dataclass(frozen=True, slots=True)
class CertificateInUse:
    """A certificate that the daemon shows to clients, or verifies them by.

    Attributes:
        file: Its file.
        subject: Its common name or, without one, its whole subject; empty if the file cannot be read.
        expires_at: End of its validity, UTC; None likewise.
    """

    file: Path
    subject: str
    expires_at: datetime | None


class BackupWay(Enum):
    """Where a backup went.

    STORED: to a file on the box. SENT: to a client.
    """

    STORED = "stored"
    SENT = "sent"


@dataclass(frozen=True, slots=True)
class CompletedBackup:
    """A backup that was made completely.

    Attributes:
        at: When it was complete, UTC.
        size_bytes: Its size.
        way: Where it went.
    """

    at: datetime
    size_bytes: int
    way: BackupWay | Unrecognized


class AlertKind(Enum):
    """The subject of an alert.

    LIBRARY: stored documents are damaged. CERTIFICATE: one is near its end, has expired or cannot be read. DISK: the
    data directory's disk is nearly full. BACKUP: a scheduled backup failed or is overdue. CLOCK: the time is wrong.
    WATCH: files of a watched folder failed, or nothing watches it any more; known where `edge-rag watch` runs.
    """

    LIBRARY = "library"
    CERTIFICATE = "certificate"
    DISK = "disk"
    BACKUP = "backup"
    CLOCK = "clock"
    WATCH = "watch"


class AlertSeverity(Enum):
    """How bad it is.

    WARNING: something will stop working, or is less safe. CRITICAL: something does not work.
    """

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong on the box.

    Attributes:
        kind: Its subject.
        severity: How bad it is.
        problem: The problem, with names of files, for operators.
        action: What to do.
    """

    kind: AlertKind | Unrecognized
    severity: AlertSeverity | Unrecognized
    problem: str
    action: str


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A backup that is kept on the box.

    Attributes:
        name: Its name.
        created_at: When it was complete, UTC.
        size_bytes: Its size.
    """

    name: str
    created_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The content of ``GetStatus``.

    Attributes:
        version: Version of the package.
        state: State of the daemon.
        started_at: Start, UTC.
        data_directory: Path of the data directory.
        profile: Name of the device profile in use.
        models: One per role.
        stages: In pipeline order.
        engine: The engine.
        collections: Number of documents by collection.
        indexes: Vector index of each collection, by name.
        resident_bytes: Resident memory of the process.
        address: Address the daemon listens on.
        latencies: Percentiles of each latency that has samples.
        devices: Devices that stages compute on, by name.
        temperatures: Thermal zones, in the board's order.
        remotes: Other machines that may compute for this one, as configured.
        throttling: How far the daemon is throttled.
        memory: The memory plan made at the start.
        pressure: How short memory is.
        damage: The damage to the library; None unless the daemon is in recovery mode.
        http_address: URL of the HTTP server; empty without it.
        console_address: URL that opens the console in a browser; empty if it is not served.
        certificates: Certificates in use; empty without TLS.
        last_backup: The latest complete backup; None if there was none.
        next_backup: When the next scheduled backup is due, UTC; None without a schedule.
        alerts: Problems of the box and what to do, the critical first.
    """

    version: str
    state: DaemonState | Unrecognized
    started_at: datetime
    data_directory: Path
    profile: str
    models: tuple[ModelInUse, ...]
    stages: tuple[StageSnapshot, ...]
    engine: EngineStats
    collections: Mapping[str, int]
    indexes: tuple[IndexInUse, ...]
    resident_bytes: int
    address: str
    latencies: tuple[Latency, ...]
    devices: tuple[DeviceUse, ...]
    temperatures: tuple[Temperature, ...]
    remotes: tuple[RemoteInUse, ...]
    throttling: Throttling
    memory: MemoryPlanReport
    pressure: MemoryPressureState
    damage: LibraryDamage | None = None
    http_address: str = ""
    console_address: str = ""
    certificates: tuple[CertificateInUse, ...] = ()
    last_backup: CompletedBackup | None = None
    next_backup: datetime | None = None
    alerts: tuple[Alert, ...] = ()
