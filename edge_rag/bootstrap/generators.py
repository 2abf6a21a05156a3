"""Makes generators from model folders, and opens their models on a provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from edge_rag.analysis.languages import DEFAULT_LANGUAGE
from edge_rag.bootstrap.memory_planner import MemoryPlanner
from edge_rag.bootstrap.startup_log import log_placement
from edge_rag.config.settings import Settings
from edge_rag.config.stages import GeneratorSettings
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import ModelStage, Provider
from edge_rag.device.placing import device_name, place
from edge_rag.device.probe import probe
from edge_rag.device.profile import DeviceProfile, ProviderChoice
from edge_rag.engine.drafter import DRAFT_TOKENS
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import ModelRunner, NoModel
from edge_rag.engine.scheduling.policy import SchedulerLimits, StepSize, limits_for
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.generator.constraints.grammar import GrammarBudget, GrammarCompiler
from edge_rag.generator.generator import AnswerGenerator, CiteSettings
from edge_rag.generator.messages import Message, message
from edge_rag.generator.model_swap import InstalledGenerator
from edge_rag.generator.prompt.template import PassageReuse, PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quote_generator import QuoteGenerator, QuoteSettings
from edge_rag.model_store.store import ModelStore
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, verify_model_folder
from edge_rag.runtime.session.providers import SPECS
from edge_rag.telemetry.engine_observer import EngineObserver

FIRST_STEP: Final = PackedStep(
    input_ids=np.zeros(1, np.int64),
    positions=np.zeros(1, np.int32),
    slot_mapping=np.zeros(1, np.int32),
    cumulative_sequence_lengths=np.array([0, 1], np.int32),
    block_table=np.zeros((1, 1), np.int32),
    logits_indices=np.zeros(1, np.int64),
)
"""Runs before the first request, which then does not wait for weights to be read."""

MAX_WAITING: Final = 256
"""Requests that may wait for a slot."""

MAX_WAITING_TOKENS: Final = 262_144
"""Tokens of all waiting requests, prompts and longest answers together."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a model will be run.

    Attributes:
        draft_tokens: Most draft tokens of a request in a step.
    """

    folder: Path
    limits: SchedulerLimits
    cache_bytes: int
    detail: str
    draft_tokens: int
    open: Callable[[ProviderChoice], ModelRunner]


class GeneratorFactory:
    """Makes generators from model folders."""

    def __init__(
        self,
        settings: Settings,
        store: ModelStore,
        profile: DeviceProfile,
        memory: MemoryPlanner,
        observer: EngineObserver,
    ) -> None:
        self._settings = settings.generator
        self._pause_s = settings.limits.slow_client_seconds
        self.store = store
        self._observer = observer
        self._providers = profile.stages[ModelStage.GENERATOR]
        self._grammar_budget = GrammarBudget()
        balanced = StepSize(profile.max_slots, profile.max_step_tokens, profile.prefill_share)
        self._limits = partial(limits_for, settings.generator.preset, balanced)
        self._memory = memory

    def make(self, name: str) -> InstalledGenerator:
        """Makes a generator, not started yet."""
        return self._make(name, self._plan(name))

    def make_without_model(self) -> InstalledGenerator:
        """Makes a generator that quotes and has no model, not started yet."""
        settings, observer = self._settings, self._observer.for_another()
        limits = SchedulerLimits(max_slots=1, max_step_tokens=2, prefill_tokens=1)
        engine = Engine(NoModel(), EngineSettings(limits, MAX_WAITING), observer, observer)
        generator = QuoteGenerator(engine, _quote_settings(settings), _prompt_settings(settings))
        return InstalledGenerator(generator, None, NoModel.page_tokens, page_bytes=0)

    def make_beside(self, name: str) -> InstalledGenerator:
        """Makes a generator while another one is running.

        Raises:
            ConfigurationError: Free memory does not hold it beside the other one.
        """
        plan = self._plan(name)
        needed = plan.cache_bytes + sum(path.stat().st_size for path in plan.folder.rglob("*") if path.is_file())
        free = probe().available_bytes
        if needed > free:
            raise ConfigurationError(
                f"{name} needs {needed // _MIB} MiB beside the present model, {free // _MIB} MiB are free; lower "
                "generator.kv_memory_mib, or name the model in the settings and restart"
            )
        return self._make(name, plan)

    def _make(self, name: str, plan: _Plan) -> InstalledGenerator:
        settings, limits = self._settings, plan.limits
        observer = self._observer.for_another()

        # The model on its provider. Only pages in this process's memory can be shifted to other positions, which
        # reused passages need.
        runner, placement = place(ModelStage.GENERATOR, self._providers, plan.open)
        runner.run(FIRST_STEP)
        paged = isinstance(runner, PagedDecoder)

        # The engine that runs it.
        engine = Engine(
            runner,
            EngineSettings(
                limits,
                MAX_WAITING,
                max_waiting_tokens=MAX_WAITING_TOKENS,
                draft_tokens=plan.draft_tokens,
                pause_s=self._pause_s,
            ),
            observer,
            observer,
            working=partial(observer.activity.working, "generator", device_name(placement)),
        )

        # Prompts, constraints and citations around the engine.
        tokenizer = ChatTokenizer.open(plan.folder)
        prompt = _prompt_settings(settings)
        generator = AnswerGenerator(
            engine,
            runner.end_tokens,
            tokenizer,
            GrammarCompiler(
                tokenizer.definition,
                tokenizer.encode,
                runner.vocabulary_size,
                runner.end_tokens,
                self._grammar_budget,
            ),
            prompt,
            _quote_settings(settings),
            CiteSettings(Stemmer, settings.unsupported),
            PromptEncoder(
                tokenizer,
                PassageReuse(runner.page_tokens) if paged else None,
            ),
        )
        model = ModelInUse(name, plan.detail, placement)
        log_placement(model)
        return InstalledGenerator(generator, model, runner.page_tokens, plan.cache_bytes // runner.pages)

    def _plan(self, name: str) -> _Plan:
        folder = self.store.find(name)
        manifest = verify_model_folder(folder, ModelRole.GENERATOR)
        memory = self._memory.plan(folder)
        if manifest.form is GeneratorForm.SERIAL:
            tokens, reason = memory.sizes.step_tokens, manifest.serial_reason
            return _Plan(
                folder=folder,
                limits=SchedulerLimits(max_slots=1, max_step_tokens=tokens, prefill_tokens=tokens - 1),
                cache_bytes=memory.kv_bytes,
                detail=f"serial, onnxruntime-genai: {reason}" if reason else "serial, onnxruntime-genai",
                draft_tokens=0,
                open=serial_opener(folder, context=memory.pages),
            )
        return _Plan(
            folder=folder,
            limits=self._limits(memory.sizes.slots, memory.sizes.step_tokens),
            cache_bytes=memory.kv_bytes,
            detail="paged, int8 kv",
            draft_tokens=DRAFT_TOKENS,
            open=paged_opener(folder, memory.pages),
        )


def paged_opener(folder: Path, pages: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns a function that opens a paged generator with ``pages`` KV pages on a provider."""

    def open_on(choice: ProviderChoice) -> ModelRunner:
        precisions = SPECS[choice.provider].decoder_precisions
        if precisions and choice.precision not in precisions:
            raise ConfigurationError(
                f"profile: generator.{choice.provider.value}.precision is {choice.precision.value}, generators run "
                f"there in {' or '.join(precision.value for precision in precisions)}"
            )
        match choice.provider:
            case Provider.CPU:
                return PagedDecoder.open(folder, pages)
            case Provider.CUDA:
                return CudaDecoder.open(folder, pages, choice.options)
        raise ProviderUnavailable(choice.provider.value, "generators have no form for it in this version")

    return open_on


def serial_opener(folder: Path, context: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns a function that opens an unconverted generator, for sequences of up to ``context`` tokens."""

    def open_on(choice: ProviderChoice) -> ModelRunner:
        if choice.provider is not Provider.CPU:
            raise ProviderUnavailable(choice.provider.value, "this version runs this stage on processor cores only")
        # Imported on use: it loads a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.decoder.serial_decoder import SerialDecoder

        return SerialDecoder.open(folder, context)

    return open_on


def _prompt_settings(settings: GeneratorSettings) -> PromptSettings:
    return PromptSettings(
        settings.not_found_text or message(Message.NOT_FOUND, DEFAULT_LANGUAGE),
        language=settings.message_language if settings.not_found_text is None else None,
    )


def _quote_settings(settings: GeneratorSettings) -> QuoteSettings:
    defaults = QuoteSettings()
    return replace(
        defaults,
        not_found_below=defaults.not_found_below if settings.not_found_below is None else settings.not_found_below,
    )
