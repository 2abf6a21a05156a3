"""The composition root: builds every part of a daemon out of its settings."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.device import choose_profile, make_board_monitor, make_memory_monitor
from edge_rag.bootstrap.encoders import COMPILED_FOLDER, EncoderOpener, Encoders
from edge_rag.bootstrap.generators import GeneratorFactory, KvDisk
from edge_rag.bootstrap.memory_planner import MemoryPlanner, parsing_bytes, token_vector_bytes
from edge_rag.bootstrap.offload import make_encoder_offload, make_offloading
from edge_rag.bootstrap.open_directory import (
    LockedLibrary,
    MilvusAddress,
    OpenDirectory,
    RetrieverOptions,
    open_data_directory,
)
from edge_rag.bootstrap.startup_log import log_ignored_generator, log_memory_plan, log_profile
from edge_rag.config.settings import Settings
from edge_rag.config.stages import MilvusSettings
from edge_rag.core.monitoring.resources import MemoryPressureState, PassageSources, Throttling
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import ModelInUse, RemoteInUse, StoredBackup
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.probe import probe
from edge_rag.device.profile import DeviceProfile, ProfileChoice
from edge_rag.errors import ConfigurationError, InvalidRequest
from edge_rag.generator.constraints.format_check import FormatChecker
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.ingest.embedding import BATCH_TEXTS
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.model_store.jobs import ModelJobs
from edge_rag.model_store.store import fill_roles, ignored_model, store_of
from edge_rag.offload.encoding.embedding import OffloadingEmbedding
from edge_rag.offload.generation.generator import OffloadingGenerator
from edge_rag.offload.ports import EncoderModels
from edge_rag.pipeline.ingest import Ingest, IngestObserver
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
from edge_rag.throttle.board_monitor import Actuators, BoardMonitor
from edge_rag.throttle.memory_monitor import MemoryMonitor, MemoryShedder

SWAP_DRAIN_S: Final = 120.0
"""Time that requests of a replaced model may take to finish."""

_MIB: Final = 1 << 20

_SECOND_LARGE_BYTES: Final = 1024 * _MIB
"""Unplanned memory with which two large documents are ingested at once; text and vectors of one take half of it."""


@dataclass(frozen=True, slots=True)
class App:
    """The running parts of a daemon.

    Attributes:
        offloading: Generator over local and remote ones; None without remotes.
        encoders: Models in the roles of embedder and reranker.
        sources: Returns where the token vectors of reranked passages came from; None with a cross-encoder.
        memory_monitor: Sheds memory under pressure; None where that is turned off.
    """

    directory: OpenDirectory
    generator: ModelSwapper
    offloading: OffloadingGenerator | None
    generators: GeneratorFactory
    model_jobs: ModelJobs
    pipeline: Pipeline
    encoder_service: EncoderService
    formats: FormatChecker
    pages: PageService
    ingest_yield: IngestYield
    ingest: Ingest
    encoders: tuple[ModelInUse, ...]
    sources: Callable[[], PassageSources] | None
    profile: DeviceProfile
    choice: ProfileChoice
    memory_plan: MemoryPlan
    board_monitor: BoardMonitor
    memory_monitor: MemoryMonitor | None

    def memory_pressure(self) -> MemoryPressureState:
        return MemoryPressureState() if self.memory_monitor is None else self.memory_monitor.state

    def throttling(self) -> Throttling:
        return self.board_monitor.state

    def models(self) -> tuple[ModelInUse, ...]:
        generator = self.generator.current.model
        return self.encoders if generator is None else (*self.encoders, generator)

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
            pause = partial(self.ingest_yield.yield_to_queries, is_ended=is_cancelled)
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
        """Stops every part, upstream first, and closes the data directory."""
        self.model_jobs.close()
        self.board_monitor.close()
        if self.memory_monitor is not None:
            self.memory_monitor.close()
        self.ingest_yield.close()
        self.directory.renewal.close()
        self.ingest.close()
        self.pages.close()
        self.encoder_service.close()
        self.pipeline.close()
        self.formats.close()
        if self.offloading is not None:
            self.offloading.close()
        self.generator.close()
        self.directory.close()


def build(settings: Settings, metrics: Metrics, observer: EngineObserver, on_progress: Callable[[str], None]) -> App:
    """Builds every part and starts the engine."""
    # The device, and what fits on it.
    facts = probe(provider_devices())
    choice = choose_profile(settings, facts)
    profile = choice.profile
    configure_thread_pool(settings.threads or profile.threads(facts))
    store = store_of(settings)
    folders = fill_roles(settings, store)
    planner = MemoryPlanner(settings, profile, facts, folders)
    plan = planner.plan(folders.generator)
    log_profile(choice)
    log_memory_plan(plan)
    if (ignored := ignored_model(settings, store, ModelRole.GENERATOR)) is not None:
        log_ignored_generator(ignored)

    with ExitStack() as built:
        # The database, whose pages are all read once, beside the models.
        beside = built.enter_context(ThreadPoolExecutor(1, "library"))
        opening = beside.submit(
            LockedLibrary,
            settings.data_directory,
            lambda done, total: on_progress(
                f"indexing the words of stored documents anew: {done:,} of {total:,} passages"
            ),
        )
        built.callback(_close_library, opening)

        # The models.
        opener = EncoderOpener(settings.data_directory / COMPILED_FOLDER, on_progress, facts)
        encoders = Encoders.open(opener, profile, folders, plan.sizes.cache_bytes)
        embedder, reranker = encoders.embedder, encoders.reranker
        generators = GeneratorFactory(settings, store, profile, planner, observer)
        if folders.generator is None:
            generator_model = generators.make_without_model()
        else:
            generator_model = generators.make(folders.generator.name)
        generator = ModelSwapper(generator_model)
        built.callback(generator.close)
        track_activity = _activity_tracker(observer.activity, encoders)
        ingest_yield = IngestYield()

        # Throttling, which offload reads.
        actuators = Actuators(generator.set_throttle, observer.activity.generated.per_second, observer)
        board_monitor = make_board_monitor(settings.throttle, profile, generator.stats().slots, actuators)

        # Offload to other machines.
        offloading = make_offloading(
            settings.offload,
            generator,
            observer,
            lambda: board_monitor.state,
            settings.limits.slow_client_seconds,
        )
        if offloading is not None:
            built.callback(offloading.close)
        encoder_offload = make_encoder_offload(
            settings.offload,
            offloading,
            EncoderModels(embedder.name, embedder.dimension),
            observer,
            lambda: board_monitor.state,
        )
        embedding = None if encoder_offload is None else OffloadingEmbedding(encoder_offload, BATCH_TEXTS)

        # Documents, indexes and stored KV pages.
        directory = open_data_directory(
            opening.result(),
            embedder,
            _retriever_options(settings, plan, planner.parsers),
            on_removed=generator.forget,
            working=partial(track_activity, "ingest"),
            embedding=embedding,
            token_embedder=None if encoders.max_sim is None else embedder,
            renew_later=True,
        )
        beside.shutdown()
        built.callback(directory.close)
        if encoders.max_sim is not None and directory.token_vectors is not None:
            encoders.max_sim.attach(directory.token_vectors)
        _attach_kv_disk(generators, directory, settings)

        # Queries and ingest.
        pipeline = Pipeline(
            directory.retriever,
            reranker,
            offloading or generator,
            StageLimits(reranker_batch=plan.sizes.questions),
            observer,
            ingest_yield=ingest_yield,
            busy=track_activity,
            prefetch=generator.prefetch if settings.generator.prefetch or settings.generator.kv_disk_mib else None,
            surroundings=directory.surroundings,
        )
        built.callback(pipeline.close)
        encoder_service = EncoderService(
            embedder,
            encoders.reranker_name,
            pipeline.rerank,
            ingest_yield,
            EncoderServiceLimits(reranks=plan.sizes.questions),
        )
        built.callback(encoder_service.close)
        formats = FormatChecker()
        built.callback(formats.close)
        ingest = Ingest(
            directory.jobs,
            directory.library,
            IngestObserver(metrics.ingested, observer.usage.ingested),
            ingest_yield.yield_to_queries,
            settings.ingest.queue,
            IngestLimits(parsers=planner.parsers, large=2 if plan.spare_bytes >= _SECOND_LARGE_BYTES else 1),
        )
        built.callback(ingest.close)
        pages = PageService(directory.pages)
        built.callback(pages.close)
        directory.renewal.start(ingest_yield.yield_to_queries)
        built.callback(directory.renewal.close)

        # Monitors, which act on the parts above.
        shedder = MemoryShedder(generator.shed_memory, encoders.keep_memory, trim_malloc, observer)
        memory_monitor = make_memory_monitor(settings.throttle, shedder)
        board_monitor.start()
        built.callback(board_monitor.close)
        if memory_monitor is not None:
            memory_monitor.start()
        built.pop_all()

    return App(
        directory=directory,
        generator=generator,
        offloading=offloading,
        generators=generators,
        model_jobs=ModelJobs(),
        pipeline=pipeline,
        encoder_service=encoder_service,
        formats=formats,
        pages=pages,
        ingest_yield=ingest_yield,
        ingest=ingest,
        encoders=encoders.models,
        sources=None if encoders.max_sim is None else encoders.max_sim.sources,
        profile=profile,
        choice=choice,
        memory_plan=plan,
        board_monitor=board_monitor,
        memory_monitor=memory_monitor,
    )


def _close_library(opening: Future[LockedLibrary]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _retriever_options(settings: Settings, plan: MemoryPlan, parsers: int) -> RetrieverOptions:
    return RetrieverOptions(
        parsing=ParsingLimits(
            max_bytes=settings.document_bytes,
            wall_seconds=settings.ingest.parse_seconds,
            cpu_seconds=settings.ingest.parse_seconds,
            memory_bytes=min(settings.ingest.parse_memory_mib * _MIB, parsing_bytes(plan, parsers)),
        ),
        parsers=parsers,
        scan_languages=settings.ingest.scan_languages,
        milvus=_milvus_address(settings.retriever.milvus),
        spool_bytes=settings.ingest.spool_mib * _MIB,
        files_bytes=settings.ingest.files_mib * _MIB,
        keep_originals=settings.ingest.keep_originals,
        token_vector_bytes=token_vector_bytes(settings),
        backups_kept=settings.backup.keep,
    )


def _milvus_address(wanted: MilvusSettings) -> MilvusAddress | None:
    if wanted.uri is None:
        return None
    token = ""
    if wanted.token_file is not None:
        try:
            token = wanted.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"retriever.milvus.token_file: {wanted.token_file}: {error}") from error
    uri = wanted.uri if wanted.uri.startswith("http") else str(Path(wanted.uri).expanduser().absolute())
    return MilvusAddress(uri, token)


def _attach_kv_disk(generators: GeneratorFactory, directory: OpenDirectory, settings: Settings) -> None:
    folder = settings.data_directory / KV
    if settings.generator.kv_disk_mib:
        budget = settings.generator.kv_disk_mib * _MIB
        generators.attach_disk(KvDisk(folder, budget, directory.identity, directory.epochs))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _activity_tracker(activity: Activity, encoders: Encoders) -> Callable[[str], AbstractContextManager[None]]:
    """Returns a function that records a stage as busy on the device of its model until its context ends."""
    devices = {
        "retriever": encoders.embedder_device,
        "ingest": encoders.embedder_device,
        "reranker": encoders.reranker_device,
    }
    return lambda stage: activity.working(stage, devices[stage])
