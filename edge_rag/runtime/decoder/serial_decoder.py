"""The model runner for folders made for onnxruntime-genai: its Generator, one sequence at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import check_step
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, GenaiDecoder, check_genai_config
from edge_rag.runtime.session.sessions import pool_threads


def require_genai() -> Any:
    """Returns the module of onnxruntime-genai."""
    try:
        import onnxruntime_genai
    except ImportError as error:
        raise ModelError(
            "a folder made for onnxruntime-genai needs that package: install it with `pip install 'edge-rag[genai]'`"
        ) from error
    onnxruntime_genai.disable_telemetry_events()
    return onnxruntime_genai


class SerialDecoder:
    """An unconverted model with a single page, as long as the context: it holds one sequence at a time.

    A new sequence replaces the present one. Used by one thread at a time. Nothing of a sequence outlasts it, so that a
    client cannot learn from the duration of an answer what another client asked.

    Attributes:
        page_bytes: Most bytes of one sequence's keys and values.
    """

    pages = 1

    def __init__(self, genai: Any, model: Any, decoder: GenaiDecoder, context: int) -> None:
        self._genai = genai
        self._model = model
        self._parameters = genai.GeneratorParams(model)
        self._parameters.set_search_options(max_length=context, batch_size=1)
        self._sequence: _Sequence | None = None
        self.page_tokens = context
        self.vocabulary_size = decoder.vocabulary_size
        self.end_tokens = decoder.end_tokens
        self.page_bytes = context * decoder.token_bytes

    @classmethod
    def open(cls, folder: Path, context: int) -> SerialDecoder:
        """Opens the model in a verified folder.

        Args:
            context: Most tokens of a sequence, from 1 to the context length that ``read_serial_sizes`` returns.
        """
        decoder = read_serial_sizes(folder)
        if not 1 <= context <= decoder.context_length:
            raise ValueError(f"context is {context}, must be 1 to {decoder.context_length}")
        genai = require_genai()
        options = {"intra_op_num_threads": pool_threads(), "log_severity_level": 3}
        try:
            config = genai.Config(str(folder))
            config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
            return cls(genai, genai.Model(config), decoder, context)
        except Exception as error:
            raise ModelError(f"{folder}: onnxruntime-genai cannot open it: {error}") from error

    @property
    def max_context(self) -> int:
        """Positions are below this, tokens."""
        return self.page_tokens

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs the next tokens of the sequence, or the first tokens of another one.

        Args:
            step: A single sequence; its positions start at 0 or continue the last run. Only the last token may have
                logits.

        Returns:
            float32 [R, vocabulary_size], R being 0 or 1; valid until the next run.

        Raises:
            InferenceFailed: The step was refused, and nothing has changed; or the run failed, and the next one must
                start at position 0.
        """
        check_step(
            step,
            vocabulary_size=self.vocabulary_size,
            max_context=self.max_context,
            page_tokens=self.page_tokens,
            pages=self.pages,
        )
        done = 0 if self._sequence is None else self._sequence.length
        first, count = int(step.positions[0]), step.input_ids.size
        if step.block_table.shape[0] != 1 or not np.array_equal(step.positions, np.arange(first, first + count)):
            raise InferenceFailed("the model runs one sequence at a time, each token after the one before")
        if first not in (0, done):
            raise InferenceFailed(f"the sequence has {done} tokens; {first} is not where it goes on")
        if not set(step.logits_indices.tolist()) <= {count - 1} or step.logits_indices.size > 1:
            raise InferenceFailed("the model gives the logits of the last token only")
        try:
            return self._append(step, first)
        except Exception as error:
            self._sequence = None
            raise InferenceFailed(f"the model run failed: {error}") from error

    def feed(self, token_ids: NDArray[np.int64], first: int) -> NDArray[np.float32]:
        """Runs tokens as a step of their own.

        Args:
            token_ids: int64 [n], n at least 1.
            first: Position of the first one.

        Returns:
            float32 [vocabulary_size], the logits after the last one; valid until the next run.
        """
        positions = np.arange(first, first + token_ids.size, dtype=np.int32)
        step = PackedStep(
            input_ids=token_ids,
            positions=positions,
            slot_mapping=positions,
            cumulative_sequence_lengths=np.array([0, token_ids.size], np.int32),
            block_table=np.zeros((1, 1), np.int32),
            logits_indices=np.array([token_ids.size - 1], np.int64),
        )
        logits: NDArray[np.float32] = self.run(step)[0]
        return logits

    def release_pages(self, pages: Sequence[int]) -> None:
        """Does nothing: onnxruntime-genai frees a sequence's memory when another one starts."""

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Not supported: onnxruntime-genai does not expose its cache."""
        raise InferenceFailed("a serial model's tokens cannot be moved")

    def _append(self, step: PackedStep, first: int) -> NDArray[np.float32]:
        if self._sequence is None or first == 0:
            self._sequence = None  # frees its memory before the next one is created
            self._sequence = _Sequence(self._genai.Generator(self._model, self._parameters))
        self._sequence.generator.append_tokens(step.input_ids.astype(np.int32))
        self._sequence.length += step.input_ids.size
        if not step.logits_indices.size:
            return np.empty((0, self.vocabulary_size), np.float32)
        logits: NDArray[np.float32] = self._sequence.generator.get_logits()
        return logits.reshape(1, self.vocabulary_size)


@dataclass(slots=True)
class _Sequence:
    """A sequence in onnxruntime-genai and its length."""

    generator: Any
    length: int = 0


def read_serial_sizes(folder: Path) -> GenaiDecoder:
    """Reads the sizes of an unconverted model; needs no memory for the model itself."""
    path = folder / GENAI_CONFIG_FILE
    try:
        decoder = check_genai_config(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path}: {error}") from error
    if not decoder.end_tokens:
        raise ModelFolderInvalid(f"{path}: model.eos_token_id names no token, so an answer would never end")
    return decoder
