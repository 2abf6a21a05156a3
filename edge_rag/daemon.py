"""The daemon: start, signals, reload and shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry

import edge_rag
from edge_rag.bootstrap.alerts import BoxAlerts, passed_time
from edge_rag.bootstrap.app import build
from edge_rag.bootstrap.network import (
    certificates,
    console_address,
    make_access,
    make_announcer,
    make_call_context,
    request_limits,
    start_http,
    transport_limits,
)
from edge_rag.bootstrap.reload import SettingsReloader
from edge_rag.bootstrap.tracing import make_traces
from edge_rag.config.sections import LogFormat
from edge_rag.config.settings import Settings
from edge_rag.core.limits.thread_shares import POOL_THREADS
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.manager import ModelManager
from edge_rag.runtime.session.process import freeze_gc, limit_malloc_arenas, lower_priority
from edge_rag.server.grpc.server import GrpcServer
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.server.limits.transport import raise_file_limit
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.status import StatusCollector
from edge_rag.storage.data_directory import PRIVATE_UMASK, make_private
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.audit_log import AuditLog, AuditLogFile
from edge_rag.telemetry.engine_observer import EngineObserver, LivenessMonitor
from edge_rag.telemetry.logs import configure_logging
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.metrics.components import (
    AlertMetrics,
    BoardMetrics,
    LibraryMetrics,
    OffloadMetrics,
    PlacementMetrics,
    StageMetrics,
    TokenVectorMetrics,
)
from edge_rag.telemetry.metrics.engine import EngineMetrics
from edge_rag.telemetry.systemd_notify import SystemdNotifier
from edge_rag.telemetry.tracing import UNTRACED, Traces
from edge_rag.telemetry.usage import UsageMeter
from edge_rag.throttle.sensors import temperatures

if TYPE_CHECKING:
    from edge_rag.discovery.announcer import Announcer
    from edge_rag.server.http.server import HttpServer

_STATUS_SECONDS: Final = 2.0
"""How long clients have to receive the status of their calls at shutdown, seconds."""


log = structlog.get_logger()


def run(settings: Settings, read: Callable[[], Settings]) -> int:
    """Runs the daemon until SIGTERM or SIGINT. Writes its addresses to standard output when it serves.

    SIGHUP reloads the settings. The service manager is notified of all state changes (sd_notify).

    Args:
        read: Reads the settings again from the same sources; raises ConfigurationError if they are invalid.

    Returns:
        Exit code 0.
    """
    configure_logging(settings.log.level.value, settings.log.format is LogFormat.JSON, settings.log.text)
    os.umask(PRIVATE_UMASK)
    if opened := make_private(settings.data_directory):  # before tokens and keys in it are believed
        path = str(settings.data_directory)
        log.warning("data directory was open to other users and is private now", path=path, entries=opened)
    limit_malloc_arenas()
    servers = 2 if settings.http.enabled else 1
    raise_file_limit(servers * transport_limits(settings).accepted_connections)
    audit_file = None if settings.audit.file is None else AuditLogFile(settings.audit.file)
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
    signals = _Signals()
    loop = asyncio.get_running_loop()
    signals.install(loop)
    # Executor threads start all compute threads, which inherit their priority and yield to the event loop.
    loop.set_default_executor(ThreadPoolExecutor(POOL_THREADS, "background", lower_priority))
    manager.status("opening models and documents")
    started_at = datetime.now(UTC)
    registry = CollectorRegistry()
    latencies = Latencies()
    metrics = Metrics(registry, latencies)
    audit = AuditLog(write=None if audit_file is None else audit_file.write)
    observer = EngineObserver(
        audit, EngineMetrics(registry), latencies, UsageMeter(), Activity(), LivenessMonitor(manager.alive)
    )
    registry.register(observer.usage)
    lifecycle = Lifecycle()
    listeners, authenticator = make_access(settings)
    calls = make_call_context(settings, lifecycle, authenticator, metrics, audit, traces)
    transport = transport_limits(settings)
    connections = Connections(ConnectionLimits(transport.connections, transport.connections_per_address))
    server = GrpcServer(
        listeners,
        calls,
        request_limits(settings),
        settings.limits.slow_client_seconds,
        transport,
        connections,
    )
    http: HttpServer | None = None
    http_address = console = ""
    addresses = await server.start()
    announcer: Announcer | None = None
    try:
        if listeners.http is not None:
            served = await start_http(settings, listeners.http, calls, connections)
            if served is not None:
                http, http_address = served
                addresses = (*addresses, http_address)
                console = console_address(settings, http_address)
        app = await asyncio.to_thread(build, settings, metrics, observer, manager.progress)
    except BaseException:
        if http is not None:
            await http.stop(grace_s=0)
        await server.stop(grace_s=0)
        raise
    scheduled = app.scheduled_backups(settings.backup.schedule)
    try:
        observer.metrics.read_from(app.generator.stats, lambda: 0 if audit_file is None else audit_file.dropped)
        registry.register(OffloadMetrics(app.remotes))
        zones = partial(temperatures, settings.throttle.root)
        registry.register(BoardMetrics(observer.activity, zones, app.throttling, app.memory_pressure))
        passed = await asyncio.to_thread(passed_time, settings.data_directory)
        alerts = BoxAlerts(settings, passed, scheduled.state, app.directory.damage)
        collector = StatusCollector(
            pipeline=app.pipeline,
            generator=app.generator,
            ingest=app.ingest,
            library=app.directory.library,
            documents=app.directory.documents,
            latencies=latencies,
            activity=observer.activity,
            temperatures=zones,
            throttling=app.throttling,
            memory=app.memory_plan.summary,
            pressure=app.memory_pressure,
            models=app.models,
            remotes=app.remotes,
            profile=app.profile.name,
            data_directory=settings.data_directory,
            address=addresses[0],
            http_address=http_address,
            console_address=console,
            started_at=started_at,
            damage=app.directory.damage,
            certificates=partial(certificates, settings),
            last_backup=lambda: app.directory.stored_backups.last,
            scheduled=scheduled.state,
            alerts=alerts.read,
        )
        registry.register(StageMetrics(collector.stages))
        registry.register(PlacementMetrics(app.models))
        registry.register(LibraryMetrics(app.directory.damage))
        registry.register(AlertMetrics(alerts.read, alerts.free_bytes))
        if app.sources is not None and app.directory.token_vectors is not None:
            registry.register(TokenVectorMetrics(app.sources, app.directory.token_vectors.use))
        if settings.metrics.port is not None:
            metrics.serve(settings.metrics.port)
        models = ModelManager(settings, app.generators.store, app.model_jobs)
        lifecycle.open(
            Backend(
                app.pipeline,
                app.ingest,
                app.directory.library,
                app.directory.documents,
                app.directory.spool,
                app.directory.files,
                app.directory.attachments,
                settings.document_bytes,
                lambda: collector.status(lifecycle.state),
                audit,
                observer.usage,
                app.use_model,
                app.backup,
                app.directory.stored_backups,
                app.directory.collections,
                app.generator,
                app.encoder_service,
                app.formats,
                app.pages,
                app.directory.feedback,
                app.directory.evaluation,
                models,
            ),
            recovery=app.directory.damage is not None,
        )
        if signals.stop:
            return
        scheduled.start()
        freeze_gc()
        await server.serving(writes=app.directory.damage is None)
        log.info(
            "serving",
            addresses=addresses,
            tls=listeners.tls is not None,
            profile=app.profile.name,
            data_directory=str(settings.data_directory),
        )
        sys.stdout.write(f"edge-rag {edge_rag.__version__} serving on {' and '.join(addresses)}\n")
        if console:
            sys.stdout.write(f"open {console} in a browser\n")
        sys.stdout.flush()
        mode = "" if app.directory.damage is None else "in recovery mode, "
        manager.ready(f"{mode}serving on {' and '.join(addresses)}")
        announcer = make_announcer(settings, addresses[0])
        if announcer is not None:
            announcer.start()
        reloader = SettingsReloader(
            settings, read, [server] if http is None else [server, http], calls.timeouts, authenticator
        )
        while await signals.reload_requested():
            manager.reloading()
            manager.ready(_reload(reloader))
    finally:
        grace_s = settings.limits.drain_seconds
        manager.stopping(f"letting calls finish, for at most {grace_s:g} s")
        log.info("draining", seconds=grace_s)
        lifecycle.drain()
        unannounced = asyncio.create_task(asyncio.to_thread(_close_announcer, announcer))
        audit.close()
        app.directory.spool.drain()
        app.ingest.drain()
        await asyncio.to_thread(scheduled.close)
        await asyncio.to_thread(app.model_jobs.close)
        await server.draining()
        try:
            await asyncio.wait_for(lifecycle.drained(), grace_s)
        except TimeoutError:
            log.warning("the grace period is over; remaining calls are cancelled")
            await asyncio.to_thread(app.cancel_queries)
        if http is not None:
            await http.stop(_STATUS_SECONDS)
        await server.stop(_STATUS_SECONDS)
        await unannounced
        await asyncio.to_thread(app.close)
        log.info("stopped")


def _close_announcer(announcer: Announcer | None) -> None:
    if announcer is not None:
        announcer.close()


def _reload(reloader: SettingsReloader) -> str:
    """Reloads the settings; returns a line for people on the result."""
    try:
        result = reloader.reload()
    except EdgeRagError as error:
        log.error("the new settings are invalid; the old ones stay in force", error=str(error))
        return f"serving with the old settings, the new ones are invalid: {error}"
    log.info("settings reloaded", changed=result.changed)
    if not result.need_restart:
        return "serving; settings reloaded"
    log.warning("these settings need a restart", keys=result.need_restart)
    return f"serving; a restart is needed for {', '.join(result.need_restart)}"


class _Signals:
    """The daemon's signals: SIGTERM and SIGINT stop it, at once when repeated; SIGHUP reloads the settings."""

    def __init__(self) -> None:
        self.stop = False
        self._reload = False
        self._changed = asyncio.Event()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, loop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    async def reload_requested(self) -> bool:
        """Waits for the next request to reload the settings; returns False when the daemon is to stop."""
        while not self.stop:
            if self._reload:
                self._reload = False
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def _on_stop(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        self.stop = True
        self._changed.set()
        loop.remove_signal_handler(number)

    def _on_reload(self) -> None:
        self._reload = True
        self._changed.set()
