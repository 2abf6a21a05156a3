"""Measures llama.cpp through llama-cpp-python's binding of its C API, with flash attention. Runs in an environment of
its own.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.llama_program import BATCH, Integers, main
from scripts.bench.peers.load import Load


class _Context:
    """A llama.cpp context and the batch that feeds it."""

    def __init__(self, api: Any, pointer: Any, batch: Any, width: int) -> None:
        self._api, self._pointer, self._batch, self._width = api, pointer, batch, width

    def compute(self, tokens: Integers, positions: Integers, sequences: Integers, wanted: NDArray[np.bool_]) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i in range(len(tokens)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(tokens[i]), int(positions[i]), 1
            batch.seq_id[i][0], batch.logits[i] = int(sequences[i]), bool(wanted[i])
        if self._api.llama_decode(self._pointer, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self._api.llama_synchronize(self._pointer)

    def logits(self, row: int) -> NDArray[np.float32]:
        return np.ctypeslib.as_array(self._api.llama_get_logits_ith(self._pointer, row), (self._width,))


class LlamaCpp:
    """A model open in llama.cpp; implements ``Library``."""

    def __init__(self, model: Path, kv: str) -> None:
        api: Any = importlib.import_module("llama_cpp")
        self._api = api
        self._kv_type = {"f16": api.GGML_TYPE_F16, "q8_0": api.GGML_TYPE_Q8_0}[kv]
        api.llama_backend_init()
        self._silence = api.llama_log_callback(lambda level, text, user: None)
        api.llama_log_set(self._silence, ctypes.c_void_p(0))
        self._model = api.llama_model_load_from_file(str(model).encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot open {model}")
        self._width = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))

    @contextmanager
    def context(self, sequences: int, outputs: int, load: Load) -> Iterator[_Context]:
        api, parameters = self._api, self._api.llama_context_default_params()
        parameters.n_ctx = sequences * load.room
        parameters.n_batch = BATCH
        parameters.n_seq_max, parameters.n_outputs_max = sequences, outputs
        parameters.n_threads = parameters.n_threads_batch = load.threads
        parameters.type_k = parameters.type_v = self._kv_type
        parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.kv_unified = False  # a stream for each sequence, which is the faster layout
        pointer = api.llama_init_from_model(self._model, parameters)
        if not pointer:
            raise RuntimeError("llama.cpp made no context")
        batch = api.llama_batch_init(BATCH, 0, 1)
        try:
            yield _Context(api, pointer, batch, self._width)
        finally:
            api.llama_batch_free(batch)
            api.llama_free(pointer)


if __name__ == "__main__":
    main(__doc__, LlamaCpp)
