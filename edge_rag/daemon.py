"""The daemon: owns start and stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

import edge_rag
from edge_rag.config.settings import LogFormat, Settings
from edge_rag.parts.building import build
from edge_rag.parts.entrance import make_entrance
from edge_rag.runtime.memory import share_malloc_arenas
from edge_rag.server.gate import Backend, Gate
from edge_rag.server.grpc_server import GrpcServer
from edge_rag.server.report import Reporter
from edge_rag.server.wire import RequestLimits
from edge_rag.telemetry.audit import AuditTrail
from edge_rag.telemetry.audit_file import AuditFile
from edge_rag.telemetry.engine_metrics import EngineMetrics
from edge_rag.telemetry.engine_watch import EngineWatch
from edge_rag.telemetry.latencies import Latencies
from edge_rag.telemetry.logs import configure_logging
from edge_rag.telemetry.metrics import Metrics
from edge_rag.telemetry.usage import UsageLedger

DRAIN_SECONDS: Final = 10.0
"""How long calls may go on after the daemon was told to stop."""

_MIB: Final = 1 << 20

log = structlog.get_logger()


def run(settings: Settings) -> int:
    """Runs the daemon until SIGTERM or SIGINT; says on standard output where it serves once it does.

    Args:
        settings: Checked settings.

    Returns:
        Exit code 0.

    Raises:
        EdgeRagError: The daemon could not start; nothing was left running.
    """
    configure_logging(settings.log.level.value, settings.log.format is LogFormat.JSON)
    share_malloc_arenas()
    audit = settings.audit
    audit_file = None if audit.file is None else AuditFile(audit.file, audit.file_mib * _MIB, audit.files_kept)
    try:
        asyncio.run(_serve(settings, audit_file))
    finally:
        if audit_file is not None:
            audit_file.close()
    return 0


async def _serve(settings: Settings, audit_file: AuditFile | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop_once_then_at_once, stop, number)
    started_at = datetime.now(UTC)
    registry = CollectorRegistry()
    latencies = Latencies()
    metrics = Metrics(registry, latencies)
    trail = AuditTrail(settings.audit.entries, None if audit_file is None else audit_file.write)
    watch = EngineWatch(trail, EngineMetrics(registry), latencies, UsageLedger())
    registry.register(watch.usage)
    gate = Gate()
    limits = RequestLimits(settings.limits.question_characters, settings.generator.mode, settings.reranker.passages)
    doors, doorkeeper = make_entrance(settings)
    server = GrpcServer(
        doors,
        doorkeeper,
        gate,
        metrics,
        limits,
        settings.document_bytes,
        settings.limits.request_seconds,
        settings.limits.concurrent_calls,
    )
    addresses = await server.start()
    try:
        parts = await asyncio.to_thread(build, settings, metrics, watch)
    except BaseException:
        await server.stop(grace_s=0)
        raise
    try:
        watch.metrics.read_from(parts.generator.snapshot, lambda: 0 if audit_file is None else audit_file.dropped)
        if settings.metrics.port is not None:
            metrics.serve(settings.metrics.port)
        reporter = Reporter(
            pipeline=parts.pipeline,
            generator=parts.generator,
            ingesting=parts.ingesting,
            library=parts.directory.library,
            latencies=latencies,
            models=parts.models,
            profile=parts.profile.name,
            data_directory=settings.data_directory,
            address=addresses[0],
            started_at=started_at,
        )
        library = parts.directory.library
        gate.open(
            Backend(
                parts.pipeline,
                parts.ingesting,
                parts.jobs,
                library,
                lambda: reporter.status(gate.state),
                watch.trail,
                watch.usage,
                parts.use_model,
                parts.backup,
                parts.directory.collections,
            )
        )
        if stop.is_set():
            return
        await server.serving()
        log.info(
            "serving",
            addresses=addresses,
            tls=doors.tls is not None,
            profile=parts.profile.name,
            data_directory=str(settings.data_directory),
        )
        sys.stdout.write(f"edge-rag {edge_rag.__version__} serving on {' and '.join(addresses)}\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        log.info("draining", seconds=DRAIN_SECONDS)
        gate.drain()
        watch.trail.close()
        parts.jobs.drain()
        await server.draining()
        await server.stop(DRAIN_SECONDS)
        await asyncio.to_thread(parts.close)
        log.info("stopped")


def _stop_once_then_at_once(stop: asyncio.Event, number: signal.Signals) -> None:
    stop.set()
    asyncio.get_running_loop().remove_signal_handler(number)
