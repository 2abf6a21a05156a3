"""Makes generators out of model folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from edge_rag.config.profile import DeviceFacts, DeviceProfile, kv_page_count, probe
from edge_rag.config.settings import GeneratorSettings, Settings
from edge_rag.core.status import ModelInUse
from edge_rag.errors import ConfigurationError
from edge_rag.generator.answer_generator import AnswerGenerator, QuoteSettings
from edge_rag.generator.curve import StepSize, limits_on
from edge_rag.generator.engine import Engine
from edge_rag.generator.exchange import Installed
from edge_rag.generator.grammar_compiler import GrammarCompiler
from edge_rag.generator.prompt import PromptSettings
from edge_rag.generator.slot_control import SlotController
from edge_rag.generator.tokenizer import ChatTokenizer
from edge_rag.runtime.geometry import PagedGeometry, read_geometry
from edge_rag.runtime.model_folder import ModelRole, verify_model_folder
from edge_rag.runtime.packed_step import PackedStep
from edge_rag.runtime.paged_decoder import PagedDecoder
from edge_rag.store.model_store import ModelStore
from edge_rag.telemetry.engine_watch import EngineWatch

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
        prompt = PromptSettings(not_found=wanted.not_found_text)
        tokenizer = ChatTokenizer.open(folder)
        grammars = GrammarCompiler(tokenizer.definition, tokenizer.encode, decoder.vocabulary_size, decoder.end_tokens)
        generator = AnswerGenerator(engine, decoder.end_tokens, tokenizer, grammars, prompt, _quote(wanted))
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


def _quote(wanted: GeneratorSettings) -> QuoteSettings:
    usual = QuoteSettings()
    return replace(
        usual,
        prior_weight=usual.prior_weight if wanted.evidence_weight is None else wanted.evidence_weight,
        not_found_below=usual.not_found_below if wanted.not_found_below is None else wanted.not_found_below,
    )
