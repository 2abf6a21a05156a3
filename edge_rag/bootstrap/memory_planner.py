"""Computes the memory needs of every part from its files, before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from edge_rag.bootstrap.network import message_memory_bytes
from edge_rag.config.settings import Settings
from edge_rag.core.monitoring.resources import MemoryItem
from edge_rag.core.placement import ModelStage
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import (
    BatchSizes,
    GeneratorNeeds,
    MemoryBounds,
    MemoryPlan,
    RerankerNeeds,
    plan_memory,
)
from edge_rag.device.profile import DeviceProfile
from edge_rag.engine.drafter import DRAFT_TOKENS
from edge_rag.engine.scheduling.policy import StepSize, limits_for
from edge_rag.generator.constraints.grammar import GRAMMAR_MEMORY_BYTES
from edge_rag.index.token_vectors import default_budget
from edge_rag.ingest.page_images import CACHE_BYTES as CACHED_PAGES_BYTES
from edge_rag.model_store.store import RoleFolders
from edge_rag.pipeline.pipeline import CANDIDATES, QUESTIONS_RERANKED
from edge_rag.reranker.max_sim import CACHE_BYTES
from edge_rag.runtime.encoder.tokenizer import graph_lengths
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import read_manifest
from edge_rag.runtime.model_folder.manifest import GeneratorForm, ModelManifest
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import GraphForm
from edge_rag.service.limits import MESSAGE_MEMORY_BYTES

_MIB: Final = 1 << 20
_FLOAT: Final = 4

# Measured with a daemon under load (docs/benchmarks.md), and rounded up.
_PROCESS_BYTES: Final = 176 * _MIB
_NPU_BYTES: Final = 96 * _MIB  # plugin and compiler, after compilation
_NPU_GRAPH_FACTOR: Final = 1.2  # of the weights, for each graph; the token table exists once, outside
_PARSER_BYTES: Final = 36 * _MIB
_CHECKER_BYTES: Final = 40 * _MIB  # while formats are in use
_STORE_BYTES: Final = 16 * _MIB  # caches of SQLite, and additions to indexes until the next start
_TOKEN_VECTOR_BYTES: Final = 8 * _MIB  # SQLite's caches, and which passages there are
_TOKENIZER_BYTES: Final = 6 * _MIB
_TOKENIZER_FACTOR: Final = 12  # of the size of tokenizer.json, grammars included
_UNIGRAM_FACTOR: Final = 37  # where pieces have scores: their prefixes are a tree of hash tables
_UNIGRAM: Final = re.compile(rb'"type"\s*:\s*"Unigram"')

_RUN_TOKENS: Final = 512
_ENCODER_ROWS: Final = 16  # of model width that a token has at once; 8 of them belong to the inner layer
_UNKNOWN_WIDTH: Final = 1024
_DECODER_ROWS: Final = 20
_PASSAGE_TOKENS: Final = 256
_SHORTEST_CONTEXT: Final = 512
"""Tokens of a question with one passage and an answer."""
_NO_GENERATOR: Final = GeneratorNeeds(0, 0, 0, page_bytes=1, page_tokens=1, max_context=1, least_context=1)
_SECOND_PARSER_BYTES: Final = 512 * _MIB
_MOST_PARSERS: Final = 4
_CORES_A_PARSER: Final = 4
_PARSER_ADDRESSES: Final = 160 * _MIB
"""Address space of the document parser's process before it reads a document."""


class MemoryPlanner:
    """Plans the memory for any generator."""

    def __init__(self, settings: Settings, profile: DeviceProfile, facts: DeviceFacts, folders: RoleFolders) -> None:
        wanted = settings.generator
        self._bounds = MemoryBounds(
            budget_bytes=facts.memory.budget_bytes,
            reserve_bytes=profile.reserve_bytes,
            kv_share=profile.kv_memory_share,
            kv_bytes=None if wanted.kv_memory_mib is None else wanted.kv_memory_mib * _MIB,
        )
        self.parsers = _parsers(facts)
        self._fixed = (
            *_fixed(folders.embedder, settings.data_directory / "vectors", self.parsers),
            *_token_vectors(settings, folders),
            _messages(settings),
            *_pages(settings),
            *_npu(profile, folders),
        )
        self._reranker = _reranker(folders, CANDIDATES)
        balanced = StepSize(profile.max_slots, profile.max_step_tokens, profile.prefill_share)
        limits = limits_for(wanted.preset, balanced, wanted.max_slots)
        self._sizes = BatchSizes(
            slots=limits.max_slots,
            step_tokens=limits.max_step_tokens,
            questions=QUESTIONS_RERANKED,
            cache_bytes=0 if folders.reranker is not None else CACHE_BYTES,
            least_slots=wanted.max_slots or 1,
        )
        self._logits = 1 + DRAFT_TOKENS

    def plan(self, folder: Path | None) -> MemoryPlan:
        """Plans the memory with a generator.

        Args:
            folder: Folder of its model; its hashes need not be checked yet. None without one.
        """
        if folder is None:
            plan = plan_memory(self._bounds, self._fixed, self._reranker, _NO_GENERATOR, self._sizes)
            *others, pages = plan.items
            items = (*(item for item in others if item.bytes), MemoryItem("KV pages", 0, "no language model"))
            return replace(plan, items=items, spare_bytes=plan.spare_bytes + pages.bytes)
        needs = generator_needs(folder, read_manifest(folder), self._logits)
        sizes = self._sizes if needs.spare_sequences > 1 else _one_slot(self._sizes)
        return plan_memory(self._bounds, self._fixed, self._reranker, needs, sizes)


def generator_needs(folder: Path, manifest: ModelManifest, logits: int) -> GeneratorNeeds:
    """Returns the memory needs of a generator.

    Args:
        logits: Most tokens of a sequence whose logits a step computes.
    """
    weights = _weights(folder)
    if manifest.form is GeneratorForm.SERIAL:
        # Imported on use: it loads a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.decoder.serial_decoder import read_serial_sizes

        serial = read_serial_sizes(folder)
        return GeneratorNeeds(
            weights_bytes=weights,
            token_bytes=_DECODER_ROWS * _UNKNOWN_WIDTH * _FLOAT,
            slot_bytes=2 * serial.vocabulary_size * _FLOAT,
            page_bytes=serial.token_bytes,
            page_tokens=1,
            max_context=serial.context_length,
            least_context=min(serial.context_length, _SHORTEST_CONTEXT),
            spare_sequences=1,
        )
    sizes = read_geometry(folder)
    return GeneratorNeeds(
        weights_bytes=weights,
        token_bytes=_DECODER_ROWS * sizes.query_heads * sizes.head_size * _FLOAT,
        slot_bytes=2 * logits * sizes.vocabulary_size * _FLOAT,
        page_bytes=sizes.page_bytes,
        page_tokens=sizes.page_tokens,
        max_context=sizes.max_context,
        least_context=sizes.max_context,
    )


def parsing_bytes(plan: MemoryPlan, parsers: int) -> int:
    """Returns the address space that each of the document parsers may take without endangering the plan."""
    return _PARSER_ADDRESSES + plan.spare_bytes // parsers


def _parsers(facts: DeviceFacts) -> int:
    """Returns the number of document parsers; with two or more, a slow document does not stop those of others."""
    if facts.memory.budget_bytes < _SECOND_PARSER_BYTES:
        return 1
    return max(2, min(_MOST_PARSERS, facts.cores // _CORES_A_PARSER))


def _fixed(embedder: Path, vectors: Path, parsers: int) -> Iterator[MemoryItem]:
    yield MemoryItem("process", _PROCESS_BYTES, "Python, libraries and gRPC")
    runs = _RUN_TOKENS * _ENCODER_ROWS * _width(embedder) * _FLOAT
    yield MemoryItem("embedder", _weights(embedder) + runs, f"runs of {_RUN_TOKENS} tokens")
    stored = _size(vectors)
    yield MemoryItem("indexes", stored + _STORE_BYTES, f"{stored / _MIB:.1f} MiB now")
    yield MemoryItem(
        "answer formats", GRAMMAR_MEMORY_BYTES + _CHECKER_BYTES, "compiled ones, and a process that checks them"
    )
    yield MemoryItem("document readers", parsers * _PARSER_BYTES, f"{parsers} processes of their own")


def _messages(settings: Settings) -> MemoryItem:
    return MemoryItem(
        "messages", message_memory_bytes(settings), f"{MESSAGE_MEMORY_BYTES >> 20} MiB shared, and gRPC's buffers"
    )


def token_vector_bytes(settings: Settings) -> int:
    """Returns the disk space for token vectors of passages."""
    wanted = settings.retriever.token_vectors_mib
    return default_budget(settings.data_directory) if wanted is None else wanted * _MIB


def _token_vectors(settings: Settings, folders: RoleFolders) -> Iterator[MemoryItem]:
    budget = token_vector_bytes(settings)
    if folders.reranker is None and budget:
        detail = f"up to {budget // _MIB} MiB on disk, which the system may keep in memory that is free"
        yield MemoryItem("token vectors", _TOKEN_VECTOR_BYTES, detail)


def _pages(settings: Settings) -> Iterator[MemoryItem]:
    if settings.http.enabled:
        yield MemoryItem("pages", CACHED_PAGES_BYTES, "pictures of pages and places of text")


def _npu(profile: DeviceProfile, folders: RoleFolders) -> Iterator[MemoryItem]:
    """Yields the memory that encoders on an NPU need in addition to that on processor cores."""
    opened = {ModelStage.EMBEDDER: folders.embedder, ModelStage.RERANKER: folders.reranker}
    graphs, took = 0, 0
    for stage, folder in opened.items():
        if folder is not None and _is_fixed(profile, stage):
            manifest = read_manifest(folder)
            lengths = len(graph_lengths(manifest.integer("max_tokens", 8, 65_536)))
            weights = sum(record.bytes for path, record in manifest.files.items() if not path.endswith(".json"))
            graphs, took = graphs + lengths, took + int(lengths * weights * _NPU_GRAPH_FACTOR)
    if graphs:
        yield MemoryItem("npu", _NPU_BYTES + took, f"{graphs} graphs of fixed lengths")


def _is_fixed(profile: DeviceProfile, stage: ModelStage) -> bool:
    return SPECS[profile.stages[stage].providers[0].provider].form is GraphForm.FIXED


def _reranker(folders: RoleFolders, candidates: int) -> RerankerNeeds:
    folder = folders.reranker
    if folder is None:
        # The embedder's runs are counted with it; the compared vectors remain.
        return RerankerNeeds(0, candidates * _PASSAGE_TOKENS * _width(folders.embedder) * _FLOAT, 0)
    runs = _RUN_TOKENS * _ENCODER_ROWS * _UNKNOWN_WIDTH * _FLOAT
    return RerankerNeeds(_weights(folder), candidates * _MIB // 16, runs)


def _one_slot(sizes: BatchSizes) -> BatchSizes:
    return BatchSizes(1, sizes.step_tokens, sizes.questions, sizes.cache_bytes)


def _width(embedder: Path) -> int:
    return read_manifest(embedder).integer("dimension", 1, 65_536)


def _weights(folder: Path) -> int:
    sizes = {path: record.bytes for path, record in read_manifest(folder).files.items()}
    tokenizer = _TOKENIZER_BYTES
    if "tokenizer.json" in sizes:
        scored = _UNIGRAM.search((folder / "tokenizer.json").read_bytes())
        tokenizer += (_UNIGRAM_FACTOR if scored else _TOKENIZER_FACTOR) * sizes["tokenizer.json"]
    return tokenizer + sum(size for path, size in sizes.items() if not path.endswith(".json"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
