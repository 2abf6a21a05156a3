"""The model runner on processor cores: one ONNX Runtime call for each step, over KV pages in this process's memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.rope_shift import RopeShift, read_rotary_tables
from edge_rag.runtime.lowering.geometry import GRAPH_FILE, PagedGeometry, read_geometry
from edge_rag.runtime.session.sessions import open_session, ops_library


def check_step(step: PackedStep, *, vocabulary_size: int, max_context: int, page_tokens: int, pages: int) -> None:
    """Validates a step before any of it reaches the model.

    Raises:
        InferenceFailed: A shape, type or value is wrong; names the array. No page has changed.
    """
    _check_form(step)
    tokens = step.input_ids.size
    lengths = step.cumulative_sequence_lengths
    counts = lengths[1:] - lengths[:-1]
    if lengths[0] != 0 or lengths[-1] != tokens or counts.min(initial=0) < 0:
        raise InferenceFailed(f"cumulative_sequence_lengths does not rise from 0 to {tokens}")
    _check_range("input_ids", step.input_ids, vocabulary_size)
    _check_range("positions", step.positions, min(max_context, step.block_table.shape[1] * page_tokens))
    _check_range("logits_indices", step.logits_indices, tokens)
    sequences = np.repeat(np.arange(counts.size), counts)
    columns, offsets = np.divmod(step.positions, page_tokens)
    used = step.block_table[sequences, columns]
    _check_range("block_table", used, pages)
    if (step.slot_mapping != used * page_tokens + offsets).any():
        raise InferenceFailed("slot_mapping does not match positions and block_table")


def _check_form(step: PackedStep) -> None:
    forms = (
        ("input_ids", step.input_ids, np.int64, 1),
        ("positions", step.positions, np.int32, 1),
        ("slot_mapping", step.slot_mapping, np.int32, 1),
        ("cumulative_sequence_lengths", step.cumulative_sequence_lengths, np.int32, 1),
        ("block_table", step.block_table, np.int32, 2),
        ("logits_indices", step.logits_indices, np.int64, 1),
    )
    for name, array, dtype, rank in forms:
        if array.dtype != dtype or array.ndim != rank or not array.flags.c_contiguous:
            wanted = f"contiguous {np.dtype(dtype)} of rank {rank}"
            raise InferenceFailed(f"{name} is {array.dtype} of rank {array.ndim}, must be {wanted}")
    tokens = step.input_ids.size
    if tokens == 0:
        raise InferenceFailed("a step has at least one token")
    for name, array in (("positions", step.positions), ("slot_mapping", step.slot_mapping)):
        if array.size != tokens:
            raise InferenceFailed(f"{name} has {array.size} entries for {tokens} tokens")
    if step.cumulative_sequence_lengths.size != step.block_table.shape[0] + 1:
        raise InferenceFailed(
            f"cumulative_sequence_lengths has {step.cumulative_sequence_lengths.size} entries "
            f"for {step.block_table.shape[0]} sequences"
        )


def _check_range(name: str, values: NDArray[np.int64] | NDArray[np.int32], limit: int) -> None:
    # A negative number is a large one without a sign. Half of the calls, which take more time than their work.
    if values.size and int(values.view(f"u{values.itemsize}").max()) >= limit:
        raise InferenceFailed(f"{name} has a value outside [0, {limit})")


class BoundInput:
    """An input that is bound once for each shape: steady decoding keeps its shapes, and copying is cheaper."""

    def __init__(self, binding: ort.IOBinding, name: str) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.generic] | None = None

    def write(self, array: NDArray[np.generic]) -> None:
        held = self._held
        if held is not None and held.shape == array.shape:
            np.copyto(held, array)
            return
        self._held = held = array.copy()
        self._binding.bind_input(self._name, "cpu", 0, held.dtype.type, held.shape, held.ctypes.data)


class BoundRows:
    """A float32 output with rows of ``width`` elements, in one block of memory for every step: avoids page faults."""

    def __init__(self, binding: ort.IOBinding, name: str, width: int) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.float32] = np.empty((0, width), np.float32)
        self._rows: NDArray[np.float32] | None = None

    def bind(self, rows: int) -> NDArray[np.float32]:
        """Makes the next run write to float32 [rows, width], and returns that array: the same memory at each call."""
        if self._rows is None or len(self._rows) != rows:
            if len(self._held) < rows:
                self._held = np.empty((rows, self._held.shape[1]), np.float32)
            self._rows = self._held[:rows]
            self._binding.bind_output(self._name, "cpu", 0, np.float32, self._rows.shape, self._rows.ctypes.data)
        return self._rows


class PagedModel:
    """A model's sizes and the number of its pages.

    Attributes:
        pages: Number of pages, at least 1; page numbers are below this.
    """

    def __init__(self, geometry: PagedGeometry, pages: int) -> None:
        self.geometry = geometry
        self.pages = pages

    @property
    def vocabulary_size(self) -> int:
        return self.geometry.vocabulary_size

    @property
    def page_tokens(self) -> int:
        return self.geometry.page_tokens

    @property
    def max_context(self) -> int:
        """Positions are below this, tokens."""
        return self.geometry.max_context

    @property
    def end_tokens(self) -> frozenset[int]:
        return self.geometry.end_tokens

    def check_step(self, step: PackedStep) -> None:
        """Checks that a step can be run."""
        check_step(
            step,
            vocabulary_size=self.vocabulary_size,
            max_context=self.max_context,
            page_tokens=self.page_tokens,
            pages=self.pages,
        )

    def check_pages(self, *pages: int) -> None:
        """Checks that pages exist."""
        for page in pages:
            if not 0 <= page < self.pages:
                raise InferenceFailed(f"page {page} is outside [0, {self.pages})")


class PageMemory:
    """Zeroed memory of a layer's pages. The system provides it as it is written; ranges can be returned.

    It starts at a page of the processor, and so at a cache line: vectors that straddle two lines make the attention of
    prefill a tenth slower.

    Args:
        size: Bytes, at least 1.

    Attributes:
        array: int8 [size], over the memory.
    """

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"{size} bytes cannot be had: {error}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # NumPy does the same for large arrays. A kernel without huge pages refuses, and small pages work as well.
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.array: NDArray[np.int8] = np.frombuffer(self._map, np.int8)

    def release(self, start: int, length: int) -> None:
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + length) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


class PagedDecoder(PagedModel):
    """A lowered model and its KV pages. Used by one thread at a time."""

    def __init__(self, geometry: PagedGeometry, session: ort.InferenceSession, pages: int, folder: Path) -> None:
        super().__init__(geometry, pages)
        self._folder = folder
        self._rope_shift: RopeShift | None = None
        self._session = session
        self._binding = session.io_binding()
        self._layer_bytes = geometry.layer_page_bytes
        shape = (pages, self._layer_bytes)
        self._memory = [PageMemory(pages * self._layer_bytes) for _ in range(geometry.layers)]
        self._layers = [memory.array.reshape(shape) for memory in self._memory]
        for layer, array in enumerate(self._layers):
            self._binding.bind_input(f"pages.{layer}", "cpu", 0, np.int8, shape, array.ctypes.data)
        self._inputs = [(name, BoundInput(self._binding, name)) for name in PackedStep.__slots__]
        self._logits = BoundRows(self._binding, "logits", geometry.vocabulary_size)

    @classmethod
    def open(cls, folder: Path, pages: int) -> PagedDecoder:
        """Opens the lowered model in a verified folder and allocates its pages.

        Args:
            pages: Number of pages, at least 1; each takes ``read_geometry(folder).page_bytes`` bytes.

        Raises:
            ModelFolderInvalid: The folder holds no lowered model, or its graph and description disagree.
            ModelError: ONNX Runtime cannot open it, the op library was not built, or the pages do not fit in memory.
        """
        if pages < 1:
            raise ValueError(f"pages is {pages}, must be at least 1")
        geometry = read_geometry(folder)
        session = open_session(folder / GRAPH_FILE, ops_library())
        declared = {value.name: value.shape for value in session.get_inputs() if value.name.startswith("pages.")}
        expected = {f"pages.{layer}": ["pages", geometry.layer_page_bytes] for layer in range(geometry.layers)}
        if declared != expected or session.get_outputs()[0].shape[-1] != geometry.vocabulary_size:
            raise ModelFolderInvalid(f"{folder}: the graph and its description disagree")
        try:
            return cls(geometry, session, pages, folder)
        except MemoryError as error:
            raise ModelError(f"{folder}: {pages} pages of {geometry.page_bytes} bytes do not fit in memory") from error

    @property
    def page_bytes(self) -> int:
        return self.geometry.page_bytes

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs one step: stores the keys and values of its tokens and computes the requested logits.

        Returns:
            float32 [R, vocabulary_size], in the order of ``step.logits_indices``; overwritten by the next run.

        Raises:
            InferenceFailed: The step was refused, and no page has changed; or the run failed, and the slots of this
                step are undefined while all others are unchanged.
        """
        self.check_step(step)
        try:
            for name, bound in self._inputs:
                bound.write(getattr(step, name))
            logits = self._logits.bind(step.logits_indices.size)
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise InferenceFailed(f"the model run failed: {error}") from error
        return logits

    def release_pages(self, pages: Sequence[int]) -> None:
        for first, count in _runs(sorted(pages)):
            for memory in self._memory:
                memory.release(first * self._layer_bytes, count * self._layer_bytes)

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Copies tokens to other slots, with keys rotated to a later position, in every layer.

        Args:
            sources: int64 [n], slots that hold them.
            targets: int64 [n], slots to write; none twice, and none a source.
            distance: Shift of their positions, at least 0.
        """
        slots = self.pages * self.page_tokens
        if sources.shape != targets.shape or any(((a < 0) | (a >= slots)).any() for a in (sources, targets)):
            raise InferenceFailed(f"a slot is outside [0, {slots})")
        if self._rope_shift is None:
            self._rope_shift = RopeShift(self.geometry, self._layers, read_rotary_tables(self._folder))
        self._rope_shift.move(sources, targets, distance)

    def read_page(self, page: int) -> bytes:
        self.check_pages(page)
        return b"".join(layer[page].tobytes() for layer in self._layers)


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(pages) + 1):
        if index == len(pages) or pages[index] != pages[index - 1] + 1:
            yield pages[start], index - start
            start = index
