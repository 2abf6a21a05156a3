"""The model runner on an NVIDIA GPU: one ONNX Runtime call for each step, over INT8 KV pages in the GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.core.placement import Provider
from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid, ProviderUnavailable
from edge_rag.runtime.decoder.cuda.folder import CUDA_GRAPH_FILE, has_cuda_form, read_cuda_form
from edge_rag.runtime.decoder.cuda.lowering import KEY_CACHE, VALUE_CACHE
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import BoundRows, PagedModel
from edge_rag.runtime.lowering.geometry import PagedGeometry
from edge_rag.runtime.session.sessions import SessionTarget, check_installed, open_session

_DEVICE: Final = "cuda"
_NUMBER: Final = "device_id"
_CAPTURE: Final = "enable_cuda_graph"


def step_inputs(step: PackedStep) -> dict[str, NDArray[Any]]:
    """Returns the inputs of the graph except its caches.

    The operator derives the slots of tokens from the lengths, so the tokens of a sequence must be contiguous. Bounds in
    ``attention_metadata`` are exact; with them a device need not read the lengths.

    Returns:
        By name: input_ids int64 [T], cumulative_sequence_lengths int32 [S+1], past_sequence_lengths int32 [S],
            block_table int32 [S, max_pages], attention_metadata int32 [3] (most new tokens of a sequence, most tokens
            of one, least of that), logits_indices int64 [max(R, 1)].
    """
    lengths = step.cumulative_sequence_lengths
    counts = np.diff(lengths)
    # An empty sequence at the end has no first token; the value read for it is not used.
    firsts = step.positions[np.minimum(lengths[:-1], step.positions.size - 1)]
    past = np.where(counts > 0, firsts, 0).astype(np.int32)
    offsets = np.arange(step.positions.size, dtype=np.int32) - np.repeat(lengths[:-1], counts)
    if not np.array_equal(step.positions, np.repeat(past, counts) + offsets):
        raise InferenceFailed("positions of a sequence do not follow each other, which the cuda provider needs")
    longest = int((past + counts).max())
    # Kernels need not support a product without rows.
    rows = step.logits_indices if step.logits_indices.size else np.zeros(1, np.int64)
    return {
        "input_ids": step.input_ids,
        "cumulative_sequence_lengths": lengths,
        "past_sequence_lengths": past,
        "block_table": step.block_table,
        "attention_metadata": np.array([counts.max(), longest, longest], np.int32),
        "logits_indices": rows,
    }


class DevicePages:
    """INT8 keys and values of a model in device memory, in pages, allocated once. Used by one thread at a time."""

    def __init__(self, geometry: PagedGeometry, pages: int, device: str, number: int) -> None:
        shape = (pages, geometry.page_tokens, geometry.kv_heads, geometry.head_size)
        names = [name.format(layer) for layer in range(geometry.layers) for name in (KEY_CACHE, VALUE_CACHE)]
        self._bytes = geometry.page_tokens * geometry.kv_heads * geometry.head_size
        try:
            self.caches = {
                name: ort.OrtValue.ortvalue_from_shape_and_type(shape, np.int8, device, number) for name in names
            }
        except Exception as error:
            needed = len(names) * pages * self._bytes
            raise ModelError(f"{pages} pages of together {needed} bytes do not fit on {device} {number}") from error

    @property
    def page_bytes(self) -> int:
        return len(self.caches) * self._bytes

    def bind(self, binding: ort.IOBinding) -> None:
        for name, cache in self.caches.items():
            binding.bind_ortvalue_input(name, cache)


class CudaDecoder(PagedModel):
    """A model's CUDA form and its KV pages in GPU memory. Used by one thread at a time.

    Tokens cannot be moved to other positions: the scales of their keys hold for the position they were computed at, and
    ONNX Runtime has no kernel that rotates them. Passages are computed again for every prompt.
    """

    def __init__(self, geometry: PagedGeometry, session: ort.InferenceSession, pages: int, memory: DevicePages) -> None:
        super().__init__(geometry, pages)
        self._session = session
        self._memory = memory
        self._binding = session.io_binding()
        memory.bind(self._binding)
        self._logits = BoundRows(self._binding, "logits", geometry.vocabulary_size)

    @classmethod
    def open(cls, folder: Path, pages: int, options: Mapping[str, str]) -> CudaDecoder:
        """Opens the CUDA form in a verified folder and allocates its pages.

        Args:
            pages: Number of pages, at least 1.
            options: Options of the CUDA provider, among them ``device_id``, ``gpu_mem_limit`` (bytes of the arena
                of weights and intermediate values; pages are separate) and ``arena_extend_strategy``.

        Raises:
            ProviderUnavailable: The provider or the GPU is missing; the folder holds no CUDA form; or the provider does
                not take all of the graph.
        """
        if pages < 1:
            raise ValueError(f"pages is {pages}, must be at least 1")
        target = SessionTarget(Provider.CUDA, options)
        check_installed(target)
        if options.get(_CAPTURE, "0") != "0":
            raise ProviderUnavailable(_DEVICE, f"{_CAPTURE} is set, and steps have shapes that no captured graph has")
        if not has_cuda_form(folder):
            raise ProviderUnavailable(
                _DEVICE, f"{folder} has no form for CUDA; make one with `edge-rag models calibrate {folder}`"
            )
        geometry = read_cuda_form(folder)
        session = open_session(folder / CUDA_GRAPH_FILE, target=target)
        _check_graph(session, geometry, folder)
        memory = DevicePages(geometry, pages, _DEVICE, int(options.get(_NUMBER, "0")))
        return cls(geometry, session, pages, memory)

    @property
    def page_bytes(self) -> int:
        return self._memory.page_bytes

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs one step: stores the keys and values of its tokens and computes the requested logits.

        Args:
            step: The packed batch; the tokens of a sequence follow each other.

        Returns:
            float32 [R, vocabulary_size], in the order of ``step.logits_indices``; overwritten by the next run.

        Raises:
            InferenceFailed: The step was refused, and no page has changed; or the run failed, and the slots of this
                step are undefined while all others are unchanged.
        """
        self.check_step(step)
        inputs = step_inputs(step)
        try:
            for name, array in inputs.items():
                # Binding copies to the GPU, so every step binds again.
                self._binding.bind_cpu_input(name, np.ascontiguousarray(array))
            logits = self._logits.bind(inputs["logits_indices"].size)
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise InferenceFailed(f"the model run failed: {error}") from error
        return logits[: step.logits_indices.size]

    def release_pages(self, pages: Sequence[int]) -> None:
        """Does nothing: GPU memory is not shared with the rest of the system."""

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Not supported."""
        raise InferenceFailed("tokens cannot be moved on a cuda device")


def _check_graph(session: ort.InferenceSession, geometry: PagedGeometry, folder: Path) -> None:
    cache = ["num_blocks", geometry.page_tokens, geometry.kv_heads, geometry.head_size]
    found = [value.shape for value in session.get_inputs() if value.name.startswith("past_key_values.")]
    if found != [cache] * (2 * geometry.layers) or session.get_outputs()[0].shape[-1] != geometry.vocabulary_size:
        raise ModelFolderInvalid(f"{folder}: the graph for cuda and its description disagree")
