"""Measures llama.cpp through llama-cpp-python's binding of its C API, with flash attention. Runs in an environment of
its own.

A context holds as many sequences as are decoded together, each in a stream of its own, which is the faster layout.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.load import Load, program_arguments, report

KV_TYPES = ("f16", "q8_0")
_BATCH = 2048


class _Context:
    """A llama.cpp context and the batch that feeds it."""

    def __init__(self, api: Any, pointer: Any, batch: Any) -> None:
        self._api, self._pointer, self._batch = api, pointer, batch

    def run(self, tokens: NDArray[np.int64], positions: NDArray[np.int64], sequences: NDArray[np.int64]) -> None:
        """Computes tokens [n] and, of each sequence in them, the last one's logits."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        last = np.append(sequences[1:] != sequences[:-1], True)
        for i, (token, position, sequence) in enumerate(zip(tokens, positions, sequences, strict=True)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), int(position), 1
            batch.seq_id[i][0], batch.logits[i] = int(sequence), bool(last[i])
        if self._api.llama_decode(self._pointer, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self._api.llama_synchronize(self._pointer)

    def every_logit(self, text: NDArray[np.int64], width: int) -> NDArray[np.float32]:
        """Computes a text and returns the logits of all its tokens, float32 [tokens, width]."""
        batch = self._batch
        batch.n_tokens = len(text)
        for i, token in enumerate(text):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, True
        if self._api.llama_decode(self._pointer, batch) != 0:
            raise RuntimeError("llama_decode failed")
        rows = (self._api.llama_get_logits_ith(self._pointer, i) for i in range(len(text)))
        return np.stack([np.ctypeslib.as_array(row, (width,)) for row in rows])

    def fill(self, sequence: int, prompt: NDArray[np.int64]) -> None:
        """Computes a prompt from position 0 on."""
        for begin in range(0, len(prompt), _BATCH):
            part = prompt[begin : begin + _BATCH]
            self.run(part, np.arange(begin, begin + len(part)), np.full(len(part), sequence))


class LlamaCppProgram:
    """A model, and a context for each thing that is measured."""

    def __init__(self, model: Path, kv: str, load: Load) -> None:
        api: Any = importlib.import_module("llama_cpp")
        self._api, self._load = api, load
        self._kv_type = {"f16": api.GGML_TYPE_F16, "q8_0": api.GGML_TYPE_Q8_0}[kv]
        api.llama_backend_init()
        self._silence = api.llama_log_callback(lambda level, text, user: None)
        api.llama_log_set(self._silence, ctypes.c_void_p(0))
        self._model = api.llama_model_load_from_file(str(model).encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot open {model}")
        with self._context(1):
            pass

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        """Computes the prompt in a fresh context."""
        with self._context(1) as context:
            started = time.perf_counter()
            context.fill(0, prompt)
            return time.perf_counter() - started

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Computes the prompts one after the other, then steps with any tokens."""
        count, length = prompts.shape
        seconds = []
        with self._context(count) as context:
            for sequence, prompt in enumerate(prompts):
                context.fill(sequence, prompt)
            for position in range(length, length + steps):
                started = time.perf_counter()
                context.run(prompts[:, position % length], np.full(count, position), np.arange(count))
                seconds.append(time.perf_counter() - started)
        return seconds

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        """Computes a text in a fresh context."""
        api = self._api
        width = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        with self._context(1, outputs=len(text)) as context:
            return context.every_logit(text, width)

    @contextmanager
    def _context(self, sequences: int, outputs: int = 0) -> Iterator[_Context]:
        api, parameters = self._api, self._api.llama_context_default_params()
        parameters.n_ctx = sequences * self._load.room
        parameters.n_batch = _BATCH
        parameters.n_seq_max, parameters.n_outputs_max = sequences, outputs or sequences
        parameters.n_threads = parameters.n_threads_batch = self._load.threads
        parameters.type_k = parameters.type_v = self._kv_type
        parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.kv_unified = False
        pointer = api.llama_init_from_model(self._model, parameters)
        if not pointer:
            raise RuntimeError("llama.cpp made no context")
        batch = api.llama_batch_init(_BATCH, 0, 1)
        try:
            yield _Context(api, pointer, batch)
        finally:
            api.llama_batch_free(batch)
            api.llama_free(pointer)


def main() -> None:
    parser = program_arguments(__doc__)
    parser.add_argument("--kv", choices=KV_TYPES, default="q8_0", help="keys and values [%(default)s]")
    arguments = parser.parse_args()
    report(arguments, lambda load: LlamaCppProgram(arguments.model, arguments.kv, load))


if __name__ == "__main__":
    main()
