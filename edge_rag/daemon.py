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
from edge_rag.bootstrap.app import App
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
from edge_rag.core.monitoring.resources import Temperature
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
from edge_rag.telemetry.engine_observer import EngineMetrics, EngineObserver, LivenessMonitor
from edge_rag.telemetry.logs import configure_logging
from edge_rag.telemetry.metrics.calls import UNTRACED, Metrics, Traces
from edge_rag.telemetry.metrics.components import (
    AlertMetrics,
    BoardMetrics,
    LibraryMetrics,
    OffloadMetrics,
    PlacementMetrics,
    StageMetrics,
    TokenVectorMetrics,
)
from edge_rag.telemetry.systemd_notify import SystemdNotifier
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
    daemon = _Daemon(settings, audit_file, manager, traces)
    await daemon.start()
    try:
        await daemon.open()
        await daemon.serve(read)
    finally:
        await daemon.stop()


class _Daemon:
    """A running daemon: its servers, which answer from the start, and the app, which opens behind them."""

    def __init__(
        self, settings: Settings, audit_file: AuditLogFile | None, manager: SystemdNotifier, traces: Traces
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._audit_file = audit_file
        self._started_at = datetime.now(UTC)
        self._signals = _Signals()
        self._registry = CollectorRegistry()
        self._latencies = Latencies()
        self._metrics = Metrics(self._registry, self._latencies)
        self._audit = AuditLog(write=None if audit_file is None else audit_file.write)
        self._observer = EngineObserver(
            self._audit,
            EngineMetrics(self._registry),
            self._latencies,
            UsageMeter(),
            Activity(),
            LivenessMonitor(manager.alive),
        )
        self._registry.register(self._observer.usage)
        self._lifecycle = Lifecycle()
        self._listeners, self._authenticator = make_access(settings)
        self._calls = make_call_context(
            settings, self._lifecycle, self._authenticator, self._metrics, self._audit, traces
        )
        self._http: HttpServer | None = None
        self._http_address = self._console = ""
        self._announcer: Announcer | None = None

    async def start(self) -> None:
        """Starts the servers, and opens models and documents behind them."""
        loop = asyncio.get_running_loop()
        self._signals.install(loop)
        # Executor threads start all compute threads, which inherit their priority and yield to the event loop.
        loop.set_default_executor(ThreadPoolExecutor(POOL_THREADS, "background", lower_priority))
        self._manager.status("opening models and documents")
        transport = transport_limits(self._settings)
        connections = Connections(ConnectionLimits(transport.connections, transport.connections_per_address))
        self._server = GrpcServer(
            self._listeners,
            self._calls,
            request_limits(self._settings),
            self._settings.limits.slow_client_seconds,
            transport,
            connections,
        )
        self._addresses = await self._server.start()
        try:
            await self._start_http(connections)
            self._app = await asyncio.to_thread(
                App, self._settings, self._metrics, self._observer, self._manager.progress
            )
        except BaseException:
            if self._http is not None:
                await self._http.stop(grace_s=0)
            await self._server.stop(grace_s=0)
            raise
        self._scheduled = self._app.scheduled_backups(self._settings.backup.schedule)

    async def _start_http(self, connections: Connections) -> None:
        if self._listeners.http is None:
            return
        served = await start_http(self._settings, self._listeners.http, self._calls, connections)
        if served is not None:
            self._http, self._http_address = served
            self._addresses = (*self._addresses, self._http_address)
            self._console = console_address(self._settings, self._http_address)

    async def open(self) -> None:
        """Lets calls reach the app, with status and metrics of its parts."""
        app, settings = self._app, self._settings
        damage = app.directory.damage
        zones = partial(temperatures, settings.throttle.root)
        passed = await asyncio.to_thread(passed_time, settings.data_directory)
        alerts = BoxAlerts(settings, passed, self._scheduled.state, damage)
        collector = self._status_collector(zones, alerts)
        self._observer.metrics.read_from(
            app.generator.stats, lambda: 0 if self._audit_file is None else self._audit_file.dropped
        )
        for part in (
            OffloadMetrics(app.remotes),
            BoardMetrics(self._observer.activity, zones, app.throttling, app.memory_pressure),
            StageMetrics(collector.stages),
            PlacementMetrics(app.models),
            LibraryMetrics(damage),
            AlertMetrics(alerts.read, alerts.free_bytes),
        ):
            self._registry.register(part)
        if app.sources is not None and app.directory.token_vectors is not None:
            self._registry.register(TokenVectorMetrics(app.sources, app.directory.token_vectors.use))
        if settings.metrics.port is not None:
            self._metrics.serve(settings.metrics.port)
        self._lifecycle.open(self._backend(collector), recovery=damage is not None)

    def _status_collector(self, zones: Callable[[], tuple[Temperature, ...]], alerts: BoxAlerts) -> StatusCollector:
        app, directory = self._app, self._app.directory
        return StatusCollector(
            pipeline=app.pipeline,
            generator=app.generator,
            ingest=app.ingest,
            library=directory.library,
            documents=directory.documents,
            latencies=self._latencies,
            activity=self._observer.activity,
            temperatures=zones,
            throttling=app.throttling,
            memory=app.memory_plan.summary,
            pressure=app.memory_pressure,
            models=app.models,
            remotes=app.remotes,
            profile=app.profile.name,
            data_directory=self._settings.data_directory,
            address=self._addresses[0],
            http_address=self._http_address,
            console_address=self._console,
            started_at=self._started_at,
            damage=directory.damage,
            certificates=partial(certificates, self._settings),
            last_backup=lambda: directory.stored_backups.last,
            scheduled=self._scheduled.state,
            alerts=alerts.read,
        )

    def _backend(self, collector: StatusCollector) -> Backend:
        app, directory = self._app, self._app.directory
        return Backend(
            pipeline=app.pipeline,
            ingest=app.ingest,
            library=directory.library,
            documents=directory.documents,
            spool=directory.spool,
            files=directory.files,
            attachments=directory.attachments,
            document_bytes=self._settings.document_bytes,
            status=lambda: collector.status(self._lifecycle.state),
            audit=self._audit,
            usage=self._observer.usage,
            use_model=app.use_model,
            backup=app.backup,
            backups=directory.stored_backups,
            collections=directory.collections,
            generator=app.generator,
            encoders=app.encoder_service,
            formats=app.formats,
            pages=app.pages,
            feedback=directory.feedback,
            evaluation=directory.evaluation,
            models=ModelManager(self._settings, app.generators.store, app.model_jobs),
        )

    async def serve(self, read: Callable[[], Settings]) -> None:
        """Answers calls until a signal ends the daemon.

        Args:
            read: Reads the settings again from the same sources.
        """
        if self._signals.stop:
            return
        whole = self._app.directory.damage is None
        self._scheduled.start()
        freeze_gc()
        await self._server.serving(writes=whole)
        self._announce(whole)
        servers = (self._server,) if self._http is None else (self._server, self._http)
        reloader = SettingsReloader(self._settings, read, servers, self._calls.timeouts, self._authenticator)
        while await self._signals.reload_requested():
            self._manager.reloading()
            self._manager.ready(_reload(reloader))

    def _announce(self, whole: bool) -> None:
        """Announces the addresses to people, the service manager and the network.

        Args:
            whole: Whether it serves the whole library; False in recovery mode.
        """
        addresses = " and ".join(self._addresses)
        log.info(
            "serving",
            addresses=self._addresses,
            tls=self._listeners.tls is not None,
            profile=self._app.profile.name,
            data_directory=str(self._settings.data_directory),
        )
        sys.stdout.write(f"edge-rag {edge_rag.__version__} serving on {addresses}\n")
        if self._console:
            sys.stdout.write(f"open {self._console} in a browser\n")
        sys.stdout.flush()
        self._manager.ready(f"{'' if whole else 'in recovery mode, '}serving on {addresses}")
        self._announcer = make_announcer(self._settings, self._addresses[0])
        if self._announcer is not None:
            self._announcer.start()

    async def stop(self) -> None:
        """Lets calls finish for the time that the settings allow, and closes every part."""
        grace_s = self._settings.limits.drain_seconds
        self._manager.stopping(f"letting calls finish, for at most {grace_s:g} s")
        log.info("draining", seconds=grace_s)
        self._lifecycle.drain()
        unannounced = asyncio.create_task(asyncio.to_thread(_close_announcer, self._announcer))
        self._audit.close()
        self._app.directory.spool.drain()
        self._app.ingest.drain()
        await asyncio.to_thread(self._scheduled.close)
        await asyncio.to_thread(self._app.model_jobs.close)
        await self._server.draining()
        try:
            await asyncio.wait_for(self._lifecycle.drained(), grace_s)
        except TimeoutError:
            log.warning("the grace period is over; remaining calls are cancelled")
            await asyncio.to_thread(self._app.cancel_queries)
        if self._http is not None:
            await self._http.stop(_STATUS_SECONDS)
        await self._server.stop(_STATUS_SECONDS)
        await unannounced
        await asyncio.to_thread(self._app.close)
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
        """Waits for the next request to reload the settings; returns False when the daemon stops."""
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
