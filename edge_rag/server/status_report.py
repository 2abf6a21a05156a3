"""The daemon's report on itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import psutil

import edge_rag
from edge_rag.core.monitoring.resources import MemoryPlanReport, MemoryPressureState, Temperature, Throttling
from edge_rag.core.monitoring.status import (
    DaemonState,
    DaemonStatus,
    ModelInUse,
    RemoteInUse,
    StageSnapshot,
)
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.pipeline.ingest import IngestStage
from edge_rag.pipeline.pipeline import Pipeline
from edge_rag.pipeline.ports import DocumentLibrary
from edge_rag.telemetry.activity import Activity
from edge_rag.telemetry.latencies import Latencies


@dataclass(frozen=True, slots=True)
class StatusCollector:
    """Gathers the report from the parts.

    Attributes:
        pipeline: The query path.
        generator: The generator stage.
        ingesting: The ingest stage.
        library: Documents.
        latencies: Percentiles.
        activity: What was done in the last seconds.
        temperatures: Reads the thermal zones.
        throttling: Returns what the board suffers from.
        memory: What the memory was planned for.
        pressure: Returns how short memory is.
        models: Returns what fills each role.
        remotes: Returns the machines that may compute for this one.
        profile: Device profile in force.
        data_directory: Directory of the data.
        address: Address the daemon listens on.
        started_at: When the daemon was started, UTC.
    """

    pipeline: Pipeline
    generator: ModelSwapper
    ingesting: IngestStage
    library: DocumentLibrary
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
    started_at: datetime

    def status(self, state: DaemonState) -> DaemonStatus:
        """Returns the report; reads the number of documents from the database."""
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
            collections=self.library.collections(),
            indexes=self.library.indexes(),
            resident_bytes=psutil.Process().memory_info().rss,
            address=self.address,
            latencies=self.latencies.read(),
            devices=self.activity.devices(),
            temperatures=self.temperatures(),
            remotes=self.remotes(),
            throttling=self.throttling(),
            memory=self.memory,
            pressure=self.pressure(),
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
        stages = (*self.pipeline.snapshots(), generator, self.ingesting.snapshot())
        return tuple(replace(stage, busy=self.activity.stage_share(stage.name)) for stage in stages)
