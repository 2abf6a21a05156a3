"""Opens the models and the data directory and puts every part together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.device import choose_profile, make_board_watch, make_memory_watch
from edge_rag.bootstrap.encoders import COMPILED_FOLDER, EncoderOpener
from edge_rag.bootstrap.generators import GeneratorMaker, KvDisk
from edge_rag.bootstrap.memory_planner import MemoryPlanner, parsing_bytes
from edge_rag.bootstrap.offload import make_loan, make_offloading
from edge_rag.bootstrap.placement import say_choice, say_placement, say_plan
from edge_rag.config.settings import Settings
from edge_rag.config.stages import MilvusSettings
from edge_rag.core.monitoring.resources import MemoryPressureState, Throttling
from edge_rag.core.monitoring.status import ModelInUse, RemoteInUse, device_of
from edge_rag.core.placement import ModelStage
from edge_rag.device.choosing import Choice
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.placing import place
from edge_rag.device.probe import probe
from edge_rag.device.profile import DeviceProfile, StageProfile
from edge_rag.errors import ConfigurationError, InvalidRequest
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.index.local import IndexLimits
from edge_rag.ingest.embedding import TEXTS_AT_ONCE
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.model_store.roles import fill_roles, store_of
from edge_rag.offload.encoding.client import Encoders
from edge_rag.offload.encoding.embedder import OffloadingEmbedding
from edge_rag.offload.encoding.reranker import OffloadingReranker
from edge_rag.offload.generation.generator import OffloadingGenerator
from edge_rag.pipeline.ingest import IngestStage, IngestWorker
from edge_rag.pipeline.pipeline import Pipeline, StageLimits
from edge_rag.pipeline.ports import Reranker
from edge_rag.pipeline.shared_encoders import EncoderService, EncoderServiceLimits
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.reranker import cross_encoder, max_sim
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.retriever.opening import MilvusAddress, OpenedDirectory, RetrieverOptions, open_data_directory
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.manifest import MANIFEST_NAME
from edge_rag.runtime.session.process import freeze_gc, trim_malloc
from edge_rag.runtime.session.sessions import configure_thread_pool, provider_devices
from edge_rag.storage.backup import KV, describe
from edge_rag.telemetry.activity import Activity
from edge_rag.telemetry.engine_observer import EngineObserver
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.throttle.board_monitor import BoardWatch, Levers
from edge_rag.throttle.memory_monitor import MemoryShedder, MemoryWatch

SWAP_DRAIN_S: Final = 120.0
"""How long requests of a model that is replaced may take to finish."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class App:
    """Everything that was built, for stopping it in order.

    Attributes:
        directory: Documents and indexes.
        generator: The generator of this box.
        offloading: What borrows other machines; None where nothing does.
        generators: Makes generators.
        pipeline: The query path.
        lending: Lends the encoders to other boxes.
        borrowed: What borrows other machines' encoders.
        ingest_yield: Has ingest give way to questions.
        ingesting: The ingest stage.
        jobs: Ingest as jobs.
        encoders: What fills the roles of embedder and reranker.
        profile: Device profile in force.
        choice: How it was chosen.
        memory: What memory was planned for when the daemon was started.
        board: Looks at the board and holds the generator back.
        shedder: Looks at the memory and gives it back; None where nothing is to give way.
    """

    directory: OpenedDirectory
    generator: ModelSwapper
    offloading: OffloadingGenerator | None
    generators: GeneratorMaker
    pipeline: Pipeline
    lending: EncoderService
    borrowed: tuple[OffloadingEmbedding | OffloadingReranker, ...]
    ingest_yield: IngestYield
    ingesting: IngestStage
    jobs: IngestWorker
    encoders: tuple[ModelInUse, ...]
    profile: DeviceProfile
    choice: Choice
    memory: MemoryPlan
    board: BoardWatch
    shedder: MemoryWatch | None

    def memory_pressure(self) -> MemoryPressureState:
        """Returns how short memory is."""
        return MemoryPressureState() if self.shedder is None else self.shedder.state

    def throttling(self) -> Throttling:
        """Returns what the board suffers from, and how much is done."""
        return self.board.state

    def models(self) -> tuple[ModelInUse, ...]:
        """Returns what fills each role now."""
        return (*self.encoders, self.generator.current.model)

    def use_model(self, role: str, name: str) -> ModelInUse:
        """Puts another model in a role while questions keep coming; returns when the old one is gone.

        Raises:
            InvalidRequest: The role cannot be changed while running.
            ConfigurationError: It does not fit in memory beside the present one.
            NotReady: Another model is being put in place, or the daemon is shutting down.
            ModelNotFound: There is no such model.
            ModelError: It was altered, or it cannot be opened; the present one stays.
        """
        if role != "generator":
            raise InvalidRequest("role", "only generator can be changed while running; others need a restart")
        try:
            return self.generator.swap(lambda: self.generators.make_beside(name), SWAP_DRAIN_S)
        finally:
            freeze_gc()
            trim_malloc()

    def remotes(self) -> tuple[RemoteInUse, ...]:
        """Returns the machines that may compute for this one, as they are now."""
        return () if self.offloading is None else self.offloading.remotes()

    def backup(self) -> Iterator[bytes]:
        """Makes a backup, piece by piece.

        Raises:
            NotReady: Another backup is being made.
            StorageError: What is stored is damaged, or the disk failed or is full.
        """
        find = self.generators.store.find
        hashes = {
            f"{model.role} {model.name}": describe(find(model.name) / MANIFEST_NAME)[1] for model in self.models()
        }
        return self.directory.backups.make(hashes)

    def give_up_questions(self) -> None:
        """Ends the questions and searches that are not finished, and whatever comes after, with NotReady."""
        if self.offloading is not None:
            self.offloading.close()
        self.generator.close()
        self.lending.close()
        self.pipeline.close()

    def close(self) -> None:
        """Stops what runs, upstream first, and lets the data directory go."""
        self.board.close()
        if self.shedder is not None:
            self.shedder.close()
        self.ingest_yield.close()
        self.jobs.close()
        self.ingesting.close()
        self.lending.close()
        self.pipeline.close()
        for each in self.borrowed:
            each.close()
        if self.offloading is not None:
            self.offloading.close()
        self.generator.close()
        self.generators.close()
        self.directory.close()


def build(settings: Settings, metrics: Metrics, watch: EngineObserver, progress: Callable[[str], None]) -> App:
    """Builds every part and starts the engine.

    Args:
        settings: Checked settings.
        metrics: Counts documents.
        watch: What the engine reports to.
        progress: Hears, in words for people, how far work that takes long is.

    Raises:
        EdgeRagError: Something is missing, altered or held by another daemon; what was built is closed again.
    """
    facts = probe(provider_devices())
    choice = choose_profile(settings, facts)
    profile = choice.profile
    configure_thread_pool(settings.threads or profile.threads(facts))
    store = store_of(settings)
    folders = fill_roles(settings, store)
    memory = MemoryPlanner(settings, profile, facts, folders)
    plan = memory.plan(folders.generator)
    say_choice(choice)
    say_plan(plan)
    stages = profile.stages
    encoders = EncoderOpener(settings.data_directory / COMPILED_FOLDER, progress, facts)
    embedder, embedder_placement = place(
        ModelStage.EMBEDDER, stages[ModelStage.EMBEDDER], encoders.embedder(folders.embedder)
    )
    embedder_model = ModelInUse(folders.embedder.name, f"{embedder.dimension} dimensions", embedder_placement)
    keepers: list[Callable[[bool], None]] = [embedder.keep_memory]
    reranker, reranker_name, reranker_model = _reranker(
        folders.reranker,
        embedder,
        embedder_model,
        stages[ModelStage.RERANKER],
        plan.sizes.cache_bytes,
        encoders,
        keepers,
    )
    say_placement(embedder_model)
    say_placement(reranker_model)
    generators = GeneratorMaker(settings, store, profile, memory, watch)
    installed = generators.make(folders.generator.name)
    parsing = ParsingLimits(
        max_bytes=settings.document_bytes,
        wall_seconds=settings.ingest.parse_seconds,
        memory_bytes=min(settings.ingest.parse_memory_mib * _MIB, parsing_bytes(plan)),
    )
    retrieval = RetrieverOptions(
        parsing=parsing,
        scan_languages=settings.ingest.scan_languages,
        indexes=IndexLimits(settings.retriever.exact_vectors),
        milvus=_milvus(settings.retriever.milvus),
        spool_bytes=settings.ingest.spool_mib * _MIB,
    )
    generator = ModelSwapper(installed)
    working = _working(watch.activity, embedder_model, reranker_model)
    ingest_yield = IngestYield()
    levers = Levers(generator.set_throttle, watch.activity.generated.per_second, watch)
    board = make_board_watch(settings.throttle, profile, generator.snapshot().slots, levers)
    offloading: OffloadingGenerator | None = None
    try:
        unread_s = settings.limits.slow_client_seconds
        offloading = make_offloading(settings.offload, generator, watch, lambda: board.state, unread_s)
        models = Encoders(embedder.name, embedder.dimension, reranker_name)
        loan = make_loan(settings.offload, offloading, models, watch, lambda: board.state)
        embedding = None if loan is None else OffloadingEmbedding(loan, embedder.embed_questions, TEXTS_AT_ONCE)
        borrowed = () if loan is None or embedding is None else (embedding, OffloadingReranker(loan, reranker))
        directory = open_data_directory(
            settings.data_directory,
            embedder,
            retrieval,
            yield_to_queries=ingest_yield.yield_to_queries,
            forget=generator.forget,
            working=partial(working, "ingest"),
            embedding=embedding,
        )
        _keep_pages(generators, directory, settings)
    except BaseException:
        if offloading is not None:
            offloading.close()
        generator.close()
        raise
    pipeline = Pipeline(
        directory.retriever,
        borrowed[1] if borrowed else reranker,
        offloading or generator,
        StageLimits(
            retriever_queue=settings.retriever.queue,
            retriever_batch=settings.retriever.batch,
            reranker_queue=settings.reranker.queue,
            reranker_batch=plan.sizes.questions,
            candidates=settings.retriever.candidates,
            event_buffer=settings.limits.event_buffer,
        ),
        watch,
        ingest_yield=ingest_yield,
        busy=working,
        prefetch=generator.prefetch if settings.generator.prefetch or settings.generator.kv_disk_mib else None,
    )
    lending_limits = EncoderServiceLimits(reranks=plan.sizes.questions)
    lending = EncoderService(embedder, reranker_name, pipeline.rerank, ingest_yield, lending_limits)
    ingesting = IngestStage(directory.library, settings.ingest.queue, metrics.ingested)
    jobs = IngestWorker(directory.jobs, directory.library, metrics.ingested)
    board.start()
    relief = MemoryShedder(generator.shed_memory, partial(_keep, keepers), trim_malloc, watch)
    shedder = make_memory_watch(settings.throttle, relief)
    if shedder is not None:
        shedder.start()
    return App(
        directory,
        generator,
        offloading,
        generators,
        pipeline,
        lending,
        borrowed,
        ingest_yield,
        ingesting,
        jobs,
        (embedder_model, reranker_model),
        profile,
        choice,
        plan,
        board,
        shedder,
    )


def _keep(keepers: Sequence[Callable[[bool], None]], keep: bool) -> None:
    for keeper in keepers:
        keeper(keep)


def _keep_pages(generators: GeneratorMaker, directory: OpenedDirectory, settings: Settings) -> None:
    """Lets generators keep pages in the data directory, or removes what is there if they are not to."""
    folder = settings.data_directory / KV
    if settings.generator.kv_disk_mib:
        budget = settings.generator.kv_disk_mib * _MIB
        generators.keep_pages(KvDisk(folder, budget, directory.identity, directory.epochs))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _working(
    activity: Activity, embedder: ModelInUse, reranker: ModelInUse
) -> Callable[[str], AbstractContextManager[None]]:
    """Notes that a stage computes on the device of its model."""
    embeds = device_of(embedder.placement.used)
    devices = {"retriever": embeds, "ingest": embeds, "reranker": device_of(reranker.placement.used)}
    return lambda stage: activity.working(stage, devices[stage])


def _milvus(wanted: MilvusSettings) -> MilvusAddress | None:
    if wanted.uri is None:
        return None
    token = ""
    if wanted.token_file is not None:
        try:
            token = wanted.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"retriever.milvus.token_file: {wanted.token_file}: {error}") from error
    uri = wanted.uri if wanted.uri.startswith("http") else str(Path(wanted.uri).expanduser().absolute())
    return MilvusAddress(uri, token, wanted.timeout_seconds)


def _reranker(
    folder: Path | None,
    embedder: TextEncoder,
    embedder_model: ModelInUse,
    wanted: StageProfile,
    cache_bytes: int,
    encoders: EncoderOpener,
    keepers: list[Callable[[bool], None]],
) -> tuple[Reranker, str, ModelInUse]:
    """Opens the reranker; returns it with what names its scores, and what fills the role."""
    if folder is None:
        # The embedder's session does its work.
        placement = replace(embedder_model.placement, stage=ModelStage.RERANKER)
        named = ModelInUse(embedder_model.name, "max-sim of token vectors", placement)
        return MaxSimReranker(embedder, cache_bytes=cache_bytes), f"{max_sim.METHOD} {embedder.name}", named
    encoder, placement = place(ModelStage.RERANKER, wanted, encoders.reranker(folder))
    keepers.append(encoder.keep_memory)
    name = f"{cross_encoder.METHOD} {encoder.identity} {embedder.name}"
    return CrossEncoderReranker(encoder, embedder), name, ModelInUse(folder.name, "cross-encoder", placement)
