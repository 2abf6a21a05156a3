"""The composition root: builds every part, owns start and stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

import edge_rag
from edge_rag.config.profile import DeviceFacts, DeviceProfile, builtin_profiles, choose, kv_page_count, probe
from edge_rag.config.settings import LogFormat, Settings
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
    server = GrpcServer(
        settings.listen,
        gate,
        metrics,
        limits,
        settings.document_bytes,
        settings.limits.request_seconds,
        settings.limits.concurrent_calls,
    )
    address = await server.start()
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
            page_tokens=parts.decoder.page_tokens,
            page_bytes=parts.decoder.page_bytes,
            profile=parts.profile.name,
            data_directory=settings.data_directory,
            address=address,
            started_at=started_at,
        )
        library = parts.directory.library
        gate.open(
            Backend(
                parts.pipeline, parts.ingesting, library, lambda: reporter.status(gate.state), watch.trail, watch.usage
            )
        )
        await server.serving()
        log.info("serving", address=address, profile=parts.profile.name, data_directory=str(settings.data_directory))
        sys.stdout.write(f"edge-rag {edge_rag.__version__} serving on {address}\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        log.info("draining", seconds=DRAIN_SECONDS)
        gate.drain()
        watch.trail.close()
        await server.draining()
        await server.stop(DRAIN_SECONDS)
        await asyncio.to_thread(parts.close)
        log.info("stopped")


def _stop_once_then_at_once(stop: asyncio.Event, number: signal.Signals) -> None:
    stop.set()
    asyncio.get_running_loop().remove_signal_handler(number)


def build(settings: Settings, metrics: Metrics, watch: EngineWatch) -> Parts:
    """Builds every part and warms the models.

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
    verify_model_folder(folder / settings.models.embedder, ModelRole.EMBEDDER)
    verify_model_folder(folder / settings.models.generator, ModelRole.GENERATOR)
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
    verify_model_folder(folder, ModelRole.RERANKER)
    in_use = ModelInUse("reranker", name, "CPUExecutionProvider", "cross-encoder")
    return CrossEncoderReranker(PairEncoder.open(folder), embedder), in_use


def _generator(
    settings: Settings, profile: DeviceProfile, facts: DeviceFacts, watch: EngineWatch
) -> tuple[AnswerGenerator, PagedDecoder]:
    wanted = settings.generator
    folder = settings.models.directory / settings.models.generator
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
