"""The composition root: builds every part of a daemon out of its settings."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.device import choose_profile, make_board_monitor, make_memory_monitor
from edge_rag.bootstrap.encoders import COMPILED_FOLDER, EncoderOpener, Encoders
from edge_rag.bootstrap.generators import GeneratorFactory
from edge_rag.bootstrap.memory_planner import MemoryPlanner
from edge_rag.bootstrap.offload import make_encoder_offload, make_offloading
from edge_rag.bootstrap.open_directory import LockedLibrary, OpenDirectory, options_of
from edge_rag.bootstrap.startup_log import log_ignored_generator, log_memory_plan, log_profile
from edge_rag.config.settings import Settings
from edge_rag.core.monitoring.resources import MemoryPressureState, PassageSources, Throttling
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import ModelInUse, RemoteInUse, StoredBackup
from edge_rag.device.probe import probe
from edge_rag.errors import InvalidRequest
from edge_rag.generator.constraints.format_check import FormatChecker
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.ingest.embedding import BATCH_TEXTS
from edge_rag.model_store.jobs import ModelJobs
from edge_rag.model_store.store import fill_roles, ignored_model, store_of
from edge_rag.offload.encoding.embedding import OffloadingEmbedding
from edge_rag.offload.ports import EncoderModels
from edge_rag.pipeline.ingest import DIRECT_DOCUMENTS, Ingest, IngestObserver
from edge_rag.pipeline.ingest_policy import IngestLimits
from edge_rag.pipeline.page_service import PageService
from edge_rag.pipeline.pipeline import Pipeline, StageLimits
from edge_rag.pipeline.shared_encoders import EncoderService, EncoderServiceLimits
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.runtime.model_folder.manifest import MANIFEST_NAME, ModelRole
from edge_rag.runtime.session.process import freeze_gc, lower_priority, trim_malloc
from edge_rag.runtime.session.sessions import configure_thread_pool, provider_devices
from edge_rag.storage.backup import KV, describe
from edge_rag.storage.recovery.scheduled_backups import ScheduledBackups, make_verified
from edge_rag.telemetry.activity import Activity
from edge_rag.telemetry.engine_observer import EngineObserver
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.throttle.board_monitor import Actuators
from edge_rag.throttle.memory_monitor import MemoryShedder

SWAP_DRAIN_S: Final = 120.0
"""Time that requests of a replaced model may take to finish."""


_SECOND_LARGE_BYTES: Final = 1 << 30
"""Unplanned memory with which two large documents are ingested at once; text and vectors of one take half of it."""


class App:
    """The running parts of a daemon; ``close`` ends them in reverse order of the steps that build them.

    Args:
        on_progress: Called with a line for people when a long step has advanced.

    Attributes:
        offloading: Generator over local and remote ones; None without remotes.
        sources: Returns where the token vectors of reranked passages came from; None with a cross-encoder.
        memory_monitor: Sheds memory under pressure; None where that is turned off.
    """

    def __init__(
        self, settings: Settings, metrics: Metrics, observer: EngineObserver, on_progress: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._plan_memory()
        with ExitStack() as resources:
            self._resources = resources
            opening = self._open_library(on_progress)
            self._open_models(on_progress)
            self._connect_peers()
            self._open_directory(opening)
            self._answer_queries()
            self._ingest_documents(metrics)
            self._watch_device()
            self.model_jobs = ModelJobs()
            resources.callback(self.model_jobs.close)
            self._resources = resources.pop_all()

    def _plan_memory(self) -> None:
        """Probes the device and plans what fits on it."""
        settings = self._settings
        self._facts = probe(provider_devices())
        choice = choose_profile(settings, self._facts)
        self.profile = choice.profile
        configure_thread_pool(settings.threads or self.profile.threads(self._facts))
        self._store = store_of(settings)
        self._folders = fill_roles(settings, self._store)
        self._planner = MemoryPlanner(settings, self.profile, self._facts, self._folders)
        self.memory_plan = self._planner.plan(self._folders.generator)
        log_profile(choice)
        log_memory_plan(self.memory_plan)
        if (ignored := ignored_model(settings, self._store, ModelRole.GENERATOR)) is not None:
            log_ignored_generator(ignored)

    def _open_library(self, on_progress: Callable[[str], None]) -> Future[LockedLibrary]:
        """Opens the database, whose pages are all read once, beside the models."""
        beside = ThreadPoolExecutor(1, "library")
        opening = beside.submit(
            LockedLibrary,
            self._settings.data_directory,
            lambda done, total: on_progress(
                f"indexing the words of stored documents anew: {done:,} of {total:,} passages"
            ),
        )
        beside.shutdown(wait=False)
        self._resources.callback(_close_library, opening)
        return opening

    def _open_models(self, on_progress: Callable[[str], None]) -> None:
        settings, folders = self._settings, self._folders
        opener = EncoderOpener(settings.data_directory / COMPILED_FOLDER, on_progress, self._facts)
        self._encoders = Encoders.open(opener, self.profile, folders, self.memory_plan.sizes.cache_bytes)
        max_sim = self._encoders.max_sim
        self.sources: Callable[[], PassageSources] | None = None if max_sim is None else max_sim.sources
        self._track_activity = _activity_tracker(self._observer.activity, self._encoders)
        self.generators = GeneratorFactory(settings, self._store, self.profile, self._planner, self._observer)
        if folders.generator is None:
            installed = self.generators.make_without_model()
        else:
            installed = self.generators.make(folders.generator.name)
        self.generator = ModelSwapper(installed)
        self._resources.callback(self.generator.close)

    def _connect_peers(self) -> None:
        """Makes what offloads work to other machines, and the throttling that it reads."""
        settings, observer, encoders = self._settings, self._observer, self._encoders
        actuators = Actuators(self.generator.set_throttle, observer.activity.generated.per_second, observer)
        slots = self.generator.stats().slots
        self._board_monitor = make_board_monitor(settings.throttle, self.profile, slots, actuators)
        slow_client_s = settings.limits.slow_client_seconds
        self.offloading = make_offloading(settings.offload, self.generator, observer, self.throttling, slow_client_s)
        if self.offloading is not None:
            self._resources.callback(self.offloading.close)
        models = EncoderModels(encoders.embedder.name, encoders.embedder.dimension)
        peers = make_encoder_offload(settings.offload, self.offloading, models, observer, self.throttling)
        self._embedding = None if peers is None else OffloadingEmbedding(peers, BATCH_TEXTS)

    def _open_directory(self, opening: Future[LockedLibrary]) -> None:
        """Opens documents and indexes."""
        encoders = self._encoders
        self.directory = OpenDirectory(
            opening.result(),
            encoders.embedder,
            options_of(self._settings, self.memory_plan, self._planner.parsers),
            on_removed=self.generator.forget,
            working=partial(self._track_activity, "ingest"),
            embedding=self._embedding,
            token_embedder=None if encoders.max_sim is None else encoders.embedder,
            renew_later=True,
        )
        if encoders.max_sim is not None and self.directory.token_vectors is not None:
            encoders.max_sim.attach(self.directory.token_vectors)
        drop_kv_folder(self._settings.data_directory / KV)

    def _answer_queries(self) -> None:
        questions = self.memory_plan.sizes.questions
        self.formats = FormatChecker()
        self._resources.callback(self.formats.close)
        self._ingest_yield = IngestYield()
        self.pipeline = Pipeline(
            self.directory.retriever,
            self._encoders.reranker,
            self.offloading or self.generator,
            StageLimits(reranker_batch=questions),
            self._observer,
            ingest_yield=self._ingest_yield,
            busy=self._track_activity,
            surroundings=self.directory.documents.surroundings,
        )
        self._resources.callback(self.pipeline.close)
        self.encoder_service = EncoderService(
            self._encoders.embedder,
            self._encoders.reranker_name,
            self.pipeline.rerank,
            self._ingest_yield,
            EncoderServiceLimits(reranks=questions),
        )
        self._resources.callback(self.encoder_service.close)
        self.pages = PageService(self.directory.pages)
        self._resources.callback(self.pages.close)

    def _ingest_documents(self, metrics: Metrics) -> None:
        large = 2 if self.memory_plan.spare_bytes >= _SECOND_LARGE_BYTES else 1
        pause = self._ingest_yield.yield_to_queries
        self.ingest = Ingest(
            self.directory.jobs,
            self.directory.library,
            IngestObserver(metrics.ingested, self._observer.usage.ingested),
            pause,
            DIRECT_DOCUMENTS,
            IngestLimits(parsers=self._planner.parsers, large=large),
        )
        self._resources.callback(self.ingest.close)
        self.directory.renewal.start(pause)
        self._resources.callback(self.directory.renewal.close)
        self._resources.callback(self._ingest_yield.close)

    def _watch_device(self) -> None:
        """Starts the monitors, which act on the other parts."""
        shedder = MemoryShedder(self.generator.shed_memory, self._encoders.keep_memory, trim_malloc, self._observer)
        self.memory_monitor = make_memory_monitor(self._settings.throttle, shedder)
        self._board_monitor.start()
        self._resources.callback(self._board_monitor.close)
        if self.memory_monitor is not None:
            self.memory_monitor.start()
            self._resources.callback(self.memory_monitor.close)

    def memory_pressure(self) -> MemoryPressureState:
        return MemoryPressureState() if self.memory_monitor is None else self.memory_monitor.state

    def throttling(self) -> Throttling:
        return self._board_monitor.state

    def models(self) -> tuple[ModelInUse, ...]:
        encoders, generator = self._encoders.models, self.generator.current.model
        return encoders if generator is None else (*encoders, generator)

    def use_model(self, role: str, name: str) -> ModelInUse:
        """Replaces the model of a role while queries are served; returns when the old one is closed.

        Raises:
            InvalidRequest: The role cannot be changed while running.
        """
        if role != "generator":
            raise InvalidRequest("role", "only generator can be changed while running; others need a restart")
        try:
            model = self.generator.swap(lambda: self.generators.make_beside(name), SWAP_DRAIN_S).model
            assert model is not None, "a named model was made"
            return model
        finally:
            freeze_gc()
            trim_malloc()

    def remotes(self) -> tuple[RemoteInUse, ...]:
        return () if self.offloading is None else self.offloading.remotes()

    def backup(self) -> Iterator[bytes]:
        find = self.generators.store.find
        hashes = {
            f"{model.role} {model.name}": describe(find(model.name) / MANIFEST_NAME)[1] for model in self.models()
        }
        return self.directory.backups.make(hashes)

    def scheduled_backups(self, schedule: str | None) -> ScheduledBackups:
        """Returns what makes backups by a schedule, not started yet; never in recovery mode, which makes none.

        Args:
            schedule: A valid schedule; None for never.
        """
        stored = self.directory.stored_backups

        def make(is_cancelled: Callable[[], bool]) -> StoredBackup:
            pause = partial(self._ingest_yield.yield_to_queries, is_ended=is_cancelled)
            return make_verified(stored, self.backup(), self.directory.backups.size_bytes(), pause, is_cancelled)

        def newest() -> datetime | None:
            kept = stored.list()
            return kept[0].created_at if kept else None

        wanted = None if schedule is None or self.directory.damage is not None else Schedule.parse(schedule)
        return ScheduledBackups(wanted, make, newest, begin=lower_priority)

    def cancel_queries(self) -> None:
        if self.offloading is not None:
            self.offloading.close()
        self.generator.close()
        self.encoder_service.close()
        self.pipeline.close()

    def close(self) -> None:
        """Stops every part and closes the data directory; idempotent."""
        self._resources.close()


def drop_kv_folder(folder: Path) -> None:
    """Removes the KV pages that earlier versions kept on disk."""
    shutil.rmtree(folder, ignore_errors=True)


def _close_library(opening: Future[LockedLibrary]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _activity_tracker(activity: Activity, encoders: Encoders) -> Callable[[str], AbstractContextManager[None]]:
    """Returns a function that records a stage as busy on the device of its model until its context ends."""
    devices = {
        "retriever": encoders.embedder_device,
        "ingest": encoders.embedder_device,
        "reranker": encoders.reranker_device,
    }
    return lambda stage: activity.working(stage, devices[stage])
