"""The composition root: opens the models and the data directory and puts every part together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from edge_rag.config.profile import DeviceFacts, DeviceProfile, builtin_profiles, choose, kv_page_count, probe
from edge_rag.config.settings import Settings
from edge_rag.core.status import ModelInUse
from edge_rag.errors import ConfigurationError, InvalidRequest
from edge_rag.generator.answer_generator import AnswerGenerator, QuoteSettings
from edge_rag.generator.curve import StepSize, limits_on
from edge_rag.generator.engine import Engine
from edge_rag.generator.exchange import GeneratorExchange, Installed
from edge_rag.generator.grammar_compiler import GrammarCompiler
from edge_rag.generator.prompt import PromptSettings
from edge_rag.generator.slot_control import SlotController
from edge_rag.generator.tokenizer import ChatTokenizer
from edge_rag.pipeline.answering import Pipeline, StageLimits
from edge_rag.pipeline.ingesting import Ingesting
from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.retriever.opening import OpenedDirectory, RetrieverSettings, open_data_directory
from edge_rag.retriever.parsing.limits import ParsingLimits
from edge_rag.runtime.geometry import PagedGeometry, read_geometry
from edge_rag.runtime.memory import give_back_free_memory
from edge_rag.runtime.model_folder import ModelRole, verify_model_folder
from edge_rag.runtime.packed_step import PackedStep
from edge_rag.runtime.paged_decoder import PagedDecoder
from edge_rag.runtime.pair_encoder import PairEncoder
from edge_rag.runtime.sessions import configure_thread_pool
from edge_rag.runtime.text_encoder import TextEncoder
from edge_rag.store.model_store import ModelStore
from edge_rag.store.roles import RoleFolders, fill_roles, store_of
from edge_rag.telemetry.engine_watch import EngineWatch
from edge_rag.telemetry.metrics import Metrics

SWAP_DRAIN_S: Final = 120.0
"""How long requests of a model that is replaced may take to finish."""

FIRST_STEP: Final = PackedStep(
    input_ids=np.zeros(1, np.int64),
    positions=np.zeros(1, np.int32),
    slot_mapping=np.zeros(1, np.int32),
    cumulative_sequence_lengths=np.array([0, 1], np.int32),
    block_table=np.zeros((1, 1), np.int32),
    logits_indices=np.zeros(1, np.int64),
)
"""Run before anybody asks, so that the first question does not wait for weights to be read."""

_MIB: Final = 1 << 20


class GeneratorMaker:
    """Makes generators out of model folders.

    Args:
        settings: Checked settings.
        store: Finds a model's folder.
        profile: Device profile in force.
        facts: What the profile's shares are of.
        watch: What engines report to.
    """

    def __init__(
        self, settings: Settings, store: ModelStore, profile: DeviceProfile, facts: DeviceFacts, watch: EngineWatch
    ) -> None:
        wanted = settings.generator
        self._settings = wanted
        self._store = store
        self._watch = watch
        balanced = StepSize(profile.max_slots, profile.max_step_tokens, profile.prefill_share)
        self._limits = limits_on(wanted.curve, balanced, wanted.max_slots, wanted.max_step_tokens)
        self._kv_bytes = profile.kv_bytes(facts) if wanted.kv_memory_mib is None else wanted.kv_memory_mib * _MIB

    def make(self, name: str) -> Installed:
        """Makes a generator, not started yet.

        Args:
            name: Name of the model's folder.

        Raises:
            ModelNotFound: There is no such model.
            ModelError: It was altered, or it cannot be opened.
            ConfigurationError: Its cache does not fit.
        """
        folder, geometry = self._verified(name)
        pages = self._pages(geometry)
        decoder = PagedDecoder.open(folder, pages)
        decoder.run(FIRST_STEP)
        wanted = self._settings
        target = wanted.target_tpot_ms
        engine = Engine(
            decoder,
            self._limits,
            wanted.queue,
            self._watch,
            self._watch,
            max_waiting_tokens=wanted.queue_tokens,
            aging_s=wanted.aging_seconds,
            slot_control=None if target is None else SlotController(target / 1000, 1, self._limits.max_slots),
        )
        weight = wanted.evidence_weight
        quote = QuoteSettings() if weight is None else QuoteSettings(prior_weight=weight)
        prompt = PromptSettings(not_found=wanted.not_found_text)
        tokenizer = ChatTokenizer.open(folder)
        grammars = GrammarCompiler(tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens)
        generator = AnswerGenerator(engine, decoder.end_tokens, tokenizer, grammars, prompt, quote)
        model = ModelInUse("generator", name, "CPUExecutionProvider", "paged, int8 kv")
        return Installed(generator, model, geometry.page_tokens, geometry.page_bytes)

    def make_beside(self, name: str) -> Installed:
        """Makes a generator while another one is in use.

        Raises:
            ConfigurationError: The memory that is free does not hold it beside the other one.
            ModelNotFound, ModelError: As in ``make``.
        """
        folder, geometry = self._verified(name)
        needed = self._pages(geometry) * geometry.page_bytes
        needed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        free = probe().available_bytes
        if needed > free:
            raise ConfigurationError(
                f"{name} needs {needed // _MIB} MiB beside the present model, {free // _MIB} MiB are free; lower "
                "generator.kv_memory_mib, or name the model in the settings and restart"
            )
        return self.make(name)

    def _verified(self, name: str) -> tuple[Path, PagedGeometry]:
        folder = self._store.find(name)
        verify_model_folder(folder, ModelRole.GENERATOR)
        return folder, read_geometry(folder)

    def _pages(self, geometry: PagedGeometry) -> int:
        slots = self._limits.max_slots
        return kv_page_count(self._kv_bytes, geometry.page_bytes, geometry.page_tokens, slots, geometry.max_context)


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that was built, for stopping it in order.

    Attributes:
        directory: Documents and indexes.
        generator: The generator stage.
        generators: Makes generators.
        pipeline: The query path.
        ingesting: The ingest stage.
        encoders: What fills the roles of embedder and reranker.
        profile: Device profile in force.
    """

    directory: OpenedDirectory
    generator: GeneratorExchange
    generators: GeneratorMaker
    pipeline: Pipeline
    ingesting: Ingesting
    encoders: tuple[ModelInUse, ...]
    profile: DeviceProfile

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
            give_back_free_memory()

    def close(self) -> None:
        """Stops what runs, upstream first, and lets the data directory go."""
        self.ingesting.close()
        self.pipeline.close()
        self.generator.close()
        self.directory.close()


def build(settings: Settings, metrics: Metrics, watch: EngineWatch) -> Parts:
    """Builds every part and starts the engine.

    Args:
        settings: Checked settings.
        metrics: Counts documents.
        watch: What the engine reports to.

    Raises:
        EdgeRagError: Something is missing, altered or held by another daemon; what was built is closed again.
    """
    facts = probe()
    profile = choose(settings.profile, facts, builtin_profiles())
    configure_thread_pool(settings.threads or profile.threads(facts))
    store = store_of(settings)
    folders = fill_roles(settings, store)
    embedder = TextEncoder.open(folders.embedder)
    reranker, reranker_model = _reranker(folders, embedder)
    generators = GeneratorMaker(settings, store, profile, facts, watch)
    installed = generators.make(folders.generator.name)
    parsing = ParsingLimits(
        max_bytes=settings.document_bytes,
        wall_seconds=settings.ingest.parse_seconds,
        memory_bytes=settings.ingest.parse_memory_mib * _MIB,
    )
    directory = open_data_directory(settings.data_directory, embedder, RetrieverSettings(parsing=parsing))
    generator = GeneratorExchange(installed)
    encoders = (
        ModelInUse("embedder", folders.embedder.name, "CPUExecutionProvider", f"{embedder.dimension} dimensions"),
        reranker_model,
    )
    pipeline = Pipeline(
        directory.retriever,
        reranker,
        generator,
        StageLimits(
            retriever_queue=settings.retriever.queue,
            retriever_batch=settings.retriever.batch,
            reranker_queue=settings.reranker.queue,
            reranker_batch=settings.reranker.batch,
            candidates=settings.retriever.candidates,
        ),
        watch,
    )
    ingesting = Ingesting(directory.library, settings.ingest.queue, metrics.ingested)
    return Parts(directory, generator, generators, pipeline, ingesting, encoders, profile)


def _reranker(folders: RoleFolders, embedder: TextEncoder) -> tuple[Reranker, ModelInUse]:
    folder = folders.reranker
    if folder is None:
        in_use = ModelInUse("reranker", folders.embedder.name, "CPUExecutionProvider", "max-sim of token vectors")
        return MaxSimReranker(embedder), in_use
    in_use = ModelInUse("reranker", folder.name, "CPUExecutionProvider", "cross-encoder")
    return CrossEncoderReranker(PairEncoder.open(folder), embedder), in_use
