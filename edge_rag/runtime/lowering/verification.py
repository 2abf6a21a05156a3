"""Runs the original and the lowered graph over one known text (teacher forcing), to compare their logits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.lowering.onnx_graph import attributes
from edge_rag.runtime.session.sessions import open_session

_TYPES: Mapping[str, type[np.generic]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OriginalDecoder:
    """Runs a decoder of the onnxruntime-genai builder on one sequence, with a growing KV cache. For one thread.

    Args:
        rings: Tokens that a past input must hold from the start, by name; 0 for inputs not named.
    """

    def __init__(self, session: ort.InferenceSession, head_size: int, rings: Mapping[str, int]) -> None:
        self._session = session
        self._names = {value.name for value in session.get_inputs()}
        self._past: dict[str, NDArray[Any]] = {}
        for value in session.get_inputs():
            if value.name.startswith("past_key_values"):
                if value.type not in _TYPES or not isinstance(value.shape[1], int):
                    raise ModelFolderInvalid(f"{value.name} is {value.type} {value.shape}, which no decoder here has")
                shape = (1, value.shape[1], rings.get(value.name, 0), head_size)
                self._past[value.name] = np.zeros(shape, _TYPES[value.type])
        self._outputs = ["logits", *(name.replace("past_key_values", "present") for name in self._past)]
        self._length = 0

    @classmethod
    def open(cls, graph: Path, head_size: int) -> OriginalDecoder:
        return cls(open_session(graph), head_size, _rings(graph))

    def feed(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Runs the next tokens of the sequence.

        Args:
            token_ids: int64 [n], n at least 1.

        Returns:
            float32 [n, vocabulary], the logits after each.

        Raises:
            InferenceFailed: ONNX Runtime refused or failed the run.
        """
        length = self._length + token_ids.size
        feeds: dict[str, NDArray[Any]] = {"input_ids": token_ids[None], **self._past}
        if "attention_mask" in self._names:
            feeds["attention_mask"] = np.ones((1, length), np.int64)
        if "position_ids" in self._names:
            feeds["position_ids"] = np.arange(self._length, length, dtype=np.int64)[None]
        try:
            logits, *present = self._session.run(self._outputs, feeds)
        except Exception as error:
            raise InferenceFailed(f"the original graph cannot be run: {error}") from error
        self._past = dict(zip(self._past, present, strict=True))
        self._length = length
        found: NDArray[np.float32] = logits[0].astype(np.float32)
        return found


def _rings(graph: Path) -> dict[str, int]:
    rings = {}
    for node in onnx.load(graph, load_external_data=False).graph.node:
        found = attributes(node)
        if node.op_type == "GroupQueryAttention" and found.get("sliding_window_cache"):
            rings.update(dict.fromkeys(node.input[3:5], found["local_window_size"]))
    return rings


_CHUNK = 48


class StepRunner(Protocol):
    """A decoder over pages."""

    @property
    def page_tokens(self) -> int:
        """Tokens a page holds."""
        ...

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs a step; returns the requested logits."""
        ...


def teacher_forced_logits(decoder: StepRunner, token_ids: NDArray[np.int64], prompt_tokens: int) -> NDArray[np.float32]:
    """Runs a known text on the decoder's first pages.

    Args:
        token_ids: int64 [n].
        prompt_tokens: Tokens of the prefill, at least 1 and at most n; each other token is a step of its own.

    Returns:
        float32 [n, vocabulary], the logits after each token.
    """
    pages = -(-token_ids.size // decoder.page_tokens)
    table = np.arange(pages, dtype=np.int32)[None]
    bounds = [*range(0, prompt_tokens, _CHUNK), *range(prompt_tokens, token_ids.size + 1)]
    found = []
    for first, last in pairwise(bounds):
        positions = np.arange(first, last, dtype=np.int32)
        step = PackedStep(
            input_ids=token_ids[first:last],
            positions=positions,
            slot_mapping=positions,
            cumulative_sequence_lengths=np.array([0, last - first], np.int32),
            block_table=table[:, : -(-last // decoder.page_tokens)],
            logits_indices=np.arange(last - first, dtype=np.int64),
        )
        found.append(decoder.run(step).copy())
    return np.concatenate(found)
