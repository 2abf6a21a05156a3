"""What the daemon reports of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from edge_rag.core.measures import Latency
from edge_rag.core.placement import Placement


class DaemonState(Enum):
    """Where the daemon is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ModelInUse:
    """A model that fills a role.

    Attributes:
        name: Name of its folder.
        detail: How it runs.
        placement: Which role it fills, and where it runs.
    """

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
        waiting: Requests in the queue.
        capacity: Most that may wait.
        running: Requests being worked on.
        completed: Requests done since start, failed ones included.
        refused: Requests refused because the queue was full, since start.
    """

    name: str
    waiting: int
    capacity: int
    running: int
    completed: int
    refused: int


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The generator's batch and KV cache at one moment.

    Attributes:
        slots_busy: Slots in use.
        slots: Slots there are.
        pages_used: Pages in use.
        pages: Pages there are.
        page_tokens: Tokens a page holds.
        kv_bytes: KV memory over all layers, bytes.
        steps: Model runs since start.
        generated_tokens: Tokens generated since start.
        prefill_tokens: Prompt tokens computed since start.
        preemptions: Times a running request had to give way, since start.
    """

    slots_busy: int
    slots: int
    pages_used: int
    pages: int
    page_tokens: int
    kv_bytes: int
    steps: int
    generated_tokens: int
    prefill_tokens: int
    preemptions: int


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
        vectors: Vectors that can be found; None where a server that has them does not say.
        fresh: Of these, how many are searched exactly beside a segment.
        size_bytes: Size of the segment's file; 0 without one.
        recall: Share of the 10 exact nearest neighbours that the segment's search found when it was built, 0 to 1;
            None without a segment.
        built_at: When the segment was built, UTC; None without one.
        build_s: How long that took, seconds; None without one.
        pending: Whether a segment is being built, or a server brought up to date.
    """

    collection: str
    kind: IndexKind
    vectors: int | None
    fresh: int = 0
    size_bytes: int = 0
    recall: float | None = None
    built_at: datetime | None = None
    build_s: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """Everything ``GetStatus`` says.

    Attributes:
        version: Version of the package.
        state: Where the daemon is in its life.
        started_at: When it was started, UTC.
        data_directory: Directory of the data.
        profile: Device profile in force.
        models: One a role.
        stages: In pipeline order.
        engine: The generator's batch and cache.
        collections: Number of documents by collection.
        indexes: Vector index of each collection, by name.
        resident_bytes: Resident memory of the process.
        address: Address the daemon listens on.
        latencies: Percentiles, one a measure of which there are samples.
    """

    version: str
    state: DaemonState
    started_at: datetime
    data_directory: Path
    profile: str
    models: tuple[ModelInUse, ...]
    stages: tuple[StageSnapshot, ...]
    engine: EngineSnapshot
    collections: Mapping[str, int]
    indexes: tuple[IndexInUse, ...]
    resident_bytes: int
    address: str
    latencies: tuple[Latency, ...]
