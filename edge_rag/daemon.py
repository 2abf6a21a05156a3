"""The daemon: owns start and stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

import edge_rag
from edge_rag.bootstrap.app import build
from edge_rag.bootstrap.network import call_limits, make_access, make_announcer, request_limits, transport_limits
from edge_rag.bootstrap.reload import SettingsReloader
from edge_rag.bootstrap.tracing import make_traces
from edge_rag.config.sections import LogFormat
from edge_rag.config.settings import Settings
from edge_rag.discovery.announcer import Announcer
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.session.process import freeze_gc, limit_malloc_arenas, lower_priority, raise_gc_threshold
from edge_rag.server.grpc.server import GrpcServer
from edge_rag.server.lifecycle import Backend, Lifecycle
from edge_rag.server.limits.transport import make_room_for
from edge_rag.server.status_report import StatusCollector
from edge_rag.telemetry.activity import Activity
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.audit_log_file import AuditLogFile
from edge_rag.telemetry.engine_observer import EngineObserver, LivenessMonitor
from edge_rag.telemetry.latencies import Latencies
from edge_rag.telemetry.logs import configure_logging
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.metrics.components import BoardMetrics, OffloadMetrics, PlacementMetrics, StageMetrics
from edge_rag.telemetry.metrics.engine import EngineMetrics
from edge_rag.telemetry.systemd_notify import SystemdNotifier
from edge_rag.telemetry.tracing import UNTRACED, Traces
from edge_rag.telemetry.usage import UsageMeter
from edge_rag.throttle.sensors import temperatures

_LAST_WORDS_SECONDS: Final = 2.0
"""How long clients have to take in how their calls ended."""

_MIB: Final = 1 << 20

log = structlog.get_logger()


def run(settings: Settings, read: Callable[[], Settings]) -> int:
    """Runs the daemon until SIGTERM or SIGINT; says on standard output where it serves once it does.

    SIGHUP has the settings read again. A service manager that asks for it is told all of this as it happens.

    Args:
        settings: Checked settings.
        read: Reads them again from where they came from; raises ConfigurationError where they are unusable.

    Returns:
        Exit code 0.

    Raises:
        EdgeRagError: The daemon could not start; nothing was left running.
    """
    configure_logging(settings.log.level.value, settings.log.format is LogFormat.JSON, settings.log.text)
    limit_malloc_arenas()
    raise_gc_threshold()
    make_room_for(settings.limits.connections)
    audit = settings.audit
    audit_file = None if audit.file is None else AuditLogFile(audit.file, audit.file_mib * _MIB, audit.files_kept)
    manager = SystemdNotifier.of(os.environ)
    traces: Traces = UNTRACED
    try:
        traces = make_traces(settings.traces)
        asyncio.run(_serve(settings, read, audit_file, manager, traces))
    finally:
        traces.close()
        manager.close()
        if audit_file is not None:
            audit_file.close()
    return 0


async def _serve(
    settings: Settings,
    read: Callable[[], Settings],
    audit_file: AuditLogFile | None,
    manager: SystemdNotifier,
    traces: Traces,
) -> None:
    asked = _Asked()
    loop = asyncio.get_running_loop()
    asked.listen(loop)
    # Everything that computes is started by one of these, and so gives way to the thread that takes calls.
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="background", initializer=lower_priority))
    manager.status("opening models and documents")
    started_at = datetime.now(UTC)
    registry = CollectorRegistry()
    latencies = Latencies()
    metrics = Metrics(registry, latencies)
    trail = AuditLog(settings.audit.entries, None if audit_file is None else audit_file.write)
    watch = EngineObserver(
        trail, EngineMetrics(registry), latencies, UsageMeter(), Activity(), LivenessMonitor(manager.alive)
    )
    registry.register(watch.usage)
    gate = Lifecycle()
    listeners, authenticator = make_access(settings)
    server = GrpcServer(
        listeners,
        authenticator,
        gate,
        metrics,
        request_limits(settings),
        settings.document_bytes,
        call_limits(settings),
        transport_limits(settings),
        traces,
    )
    addresses = await server.start()
    announcer: Announcer | None = None
    try:
        app = await asyncio.to_thread(build, settings, metrics, watch, manager.status)
    except BaseException:
        await server.stop(grace_s=0)
        raise
    try:
        watch.metrics.read_from(app.generator.stats, lambda: 0 if audit_file is None else audit_file.dropped)
        registry.register(OffloadMetrics(app.remotes))
        zones = partial(temperatures, settings.throttle.root)
        registry.register(BoardMetrics(watch.activity, zones, app.throttling, app.memory_pressure))
        reporter = StatusCollector(
            pipeline=app.pipeline,
            generator=app.generator,
            ingesting=app.ingest_stage,
            library=app.directory.library,
            latencies=latencies,
            activity=watch.activity,
            temperatures=zones,
            throttling=app.throttling,
            memory=app.memory_plan.summary,
            pressure=app.memory_pressure,
            models=app.models,
            remotes=app.remotes,
            profile=app.profile.name,
            data_directory=settings.data_directory,
            address=addresses[0],
            started_at=started_at,
        )
        registry.register(StageMetrics(reporter.stages))
        registry.register(PlacementMetrics(app.models))
        if settings.metrics.port is not None:
            metrics.serve(settings.metrics.port)
        library = app.directory.library
        gate.open(
            Backend(
                app.pipeline,
                app.ingest_stage,
                app.ingest_worker,
                library,
                lambda: reporter.status(gate.state),
                watch.trail,
                watch.usage,
                app.use_model,
                app.backup,
                app.directory.collections,
                app.generator,
                app.encoder_service,
            )
        )
        if asked.to_stop:
            return
        freeze_gc()
        await server.serving()
        log.info(
            "serving",
            addresses=addresses,
            tls=listeners.tls is not None,
            profile=app.profile.name,
            data_directory=str(settings.data_directory),
        )
        sys.stdout.write(f"edge-rag {edge_rag.__version__} serving on {' and '.join(addresses)}\n")
        sys.stdout.flush()
        manager.ready(f"serving on {' and '.join(addresses)}")
        announcer = make_announcer(settings, addresses[0])
        if announcer is not None:
            announcer.start()
        reloader = SettingsReloader(settings, read, server, authenticator)
        while await asked.to_read_settings():
            manager.reloading()
            manager.ready(_reload(reloader))
    finally:
        grace_s = settings.limits.drain_seconds
        manager.stopping(f"letting calls finish, for at most {grace_s:g} s")
        log.info("draining", seconds=grace_s)
        gate.drain()
        withdrawn = asyncio.create_task(asyncio.to_thread(_withdraw, announcer))
        watch.trail.close()
        app.ingest_worker.drain()
        await server.draining()
        try:
            await asyncio.wait_for(gate.idle(), grace_s)
        except TimeoutError:
            log.warning("calls are given up: they take longer than the grace time")
            await asyncio.to_thread(app.cancel_queries)
        await server.stop(_LAST_WORDS_SECONDS)
        await withdrawn
        await asyncio.to_thread(app.close)
        log.info("stopped")


def _withdraw(announcer: Announcer | None) -> None:
    if announcer is not None:
        announcer.close()


def _reload(reloader: SettingsReloader) -> str:
    """Reloads the settings; returns a line for people on the result."""
    try:
        result = reloader.reload()
    except EdgeRagError as error:
        log.error("the settings cannot be used; the old ones stay", error=str(error))
        return f"serving with the old settings, the new ones cannot be used: {error}"
    log.info("settings read again", changed=result.changed)
    if not result.need_restart:
        return "serving; settings read again"
    log.warning("these settings need a restart", keys=result.need_restart)
    return f"serving; a restart is needed for {', '.join(result.need_restart)}"


class _Asked:
    """What signals ask for: SIGTERM and SIGINT to stop, and a second one to stop at once; SIGHUP to read settings."""

    def __init__(self) -> None:
        self.to_stop = False
        self._to_read = False
        self._changed = asyncio.Event()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, loop, number)
        loop.add_signal_handler(signal.SIGHUP, self._read)

    async def to_read_settings(self) -> bool:
        """Waits until the settings are to be read, or, returning False, until the daemon is to stop."""
        while not self.to_stop:
            if self._to_read:
                self._to_read = False
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def _stop(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        self.to_stop = True
        self._changed.set()
        loop.remove_signal_handler(number)

    def _read(self) -> None:
        self._to_read = True
        self._changed.set()
