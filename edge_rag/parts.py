"""The composition root: opens the models and the data directory and puts every part together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_rag.config.profile import DeviceFacts, DeviceProfile, builtin_profiles, choose, kv_page_count, probe
from edge_rag.config.settings import Settings
from edge_rag.core.status import ModelInUse
from edge_rag.generator.answer_generator import AnswerGenerator, QuoteSettings
from edge_rag.generator.curve import StepSize, limits_on
from edge_rag.generator.engine import Engine
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
from edge_rag.runtime.geometry import read_geometry
from edge_rag.runtime.model_folder import ModelRole, verify_model_folder
from edge_rag.runtime.paged_decoder import PagedDecoder
from edge_rag.runtime.pair_encoder import PairEncoder
from edge_rag.runtime.sessions import configure_thread_pool
from edge_rag.runtime.text_encoder import TextEncoder
from edge_rag.telemetry.engine_watch import EngineWatch
from edge_rag.telemetry.metrics import Metrics

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that was built, for stopping it in order.

    Attributes:
        directory: Documents and indexes.
        decoder: The language model.
        generator: The generator stage.
        pipeline: The query path.
        ingesting: The ingest stage.
        models: What fills each role.
        profile: Device profile in force.
    """

    directory: OpenedDirectory
    decoder: PagedDecoder
    generator: AnswerGenerator
    pipeline: Pipeline
    ingesting: Ingesting
    models: tuple[ModelInUse, ...]
    profile: DeviceProfile

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
    folder = settings.models.directory
    embedder = TextEncoder.open(folder / settings.models.embedder)
    reranker, reranker_model = _reranker(settings, embedder)
    generator, decoder = _generator(settings, profile, facts, watch)
    parsing = ParsingLimits(
        max_bytes=settings.document_bytes,
        wall_seconds=settings.ingest.parse_seconds,
        memory_bytes=settings.ingest.parse_memory_mib * _MIB,
    )
    directory = open_data_directory(settings.data_directory, embedder, RetrieverSettings(parsing=parsing))
    generator.start()
    models = (
        ModelInUse("embedder", settings.models.embedder, "CPUExecutionProvider", f"{embedder.dimension} dimensions"),
        reranker_model,
        ModelInUse("generator", settings.models.generator, "CPUExecutionProvider", "paged, int8 kv"),
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
    return Parts(directory, decoder, generator, pipeline, ingesting, models, profile)


def _reranker(settings: Settings, embedder: TextEncoder) -> tuple[Reranker, ModelInUse]:
    name = settings.models.reranker
    if name is None:
        in_use = ModelInUse("reranker", settings.models.embedder, "CPUExecutionProvider", "max-sim of token vectors")
        return MaxSimReranker(embedder), in_use
    folder = settings.models.directory / name
    in_use = ModelInUse("reranker", name, "CPUExecutionProvider", "cross-encoder")
    return CrossEncoderReranker(PairEncoder.open(folder), embedder), in_use


def _generator(
    settings: Settings, profile: DeviceProfile, facts: DeviceFacts, watch: EngineWatch
) -> tuple[AnswerGenerator, PagedDecoder]:
    wanted = settings.generator
    folder = settings.models.directory / settings.models.generator
    verify_model_folder(folder, ModelRole.GENERATOR)
    geometry = read_geometry(folder)
    balanced = StepSize(profile.max_slots, profile.max_step_tokens, profile.prefill_share)
    limits = limits_on(wanted.curve, balanced, wanted.max_slots, wanted.max_step_tokens)
    budget = profile.kv_bytes(facts) if wanted.kv_memory_mib is None else wanted.kv_memory_mib * _MIB
    pages = kv_page_count(budget, geometry.page_bytes, geometry.page_tokens, limits.max_slots, geometry.max_context)
    decoder = PagedDecoder.open(folder, pages)
    target = wanted.target_tpot_ms
    engine = Engine(
        decoder,
        limits,
        wanted.queue,
        watch,
        watch,
        max_waiting_tokens=wanted.queue_tokens,
        aging_s=wanted.aging_seconds,
        slot_control=None if target is None else SlotController(target / 1000, 1, limits.max_slots),
    )
    quote = QuoteSettings() if wanted.evidence_weight is None else QuoteSettings(prior_weight=wanted.evidence_weight)
    prompt = PromptSettings(not_found=wanted.not_found_text)
    tokenizer = ChatTokenizer.open(folder)
    grammars = GrammarCompiler(tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens)
    return AnswerGenerator(engine, decoder.end_tokens, tokenizer, grammars, prompt, quote), decoder
