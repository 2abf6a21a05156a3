"""Measures ik_llama.cpp, built from its source, with flash attention. Runs in an environment of its own, which holds
the library that ``preparation.build_ik_llama`` made of the file ``ik_llama.cpp`` beside this one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.llama_program import BATCH, Integers, main
from scripts.bench.peers.load import Load

LIBRARY = "libik_llama.so"


class _Context:
    """A context of ik_llama.cpp."""

    def __init__(self, api: ctypes.CDLL, pointer: Any, width: int) -> None:
        self._api, self._pointer, self._width = api, pointer, width

    def compute(self, tokens: Integers, positions: Integers, sequences: Integers, wanted: NDArray[np.bool_]) -> None:
        arrays = [np.ascontiguousarray(each, np.int32) for each in (tokens, positions, sequences)]
        arrays.append(np.ascontiguousarray(wanted, np.int8))
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in arrays]
        if self._api.ik_compute(self._pointer, len(tokens), *pointers) != 0:
            raise RuntimeError("llama_decode failed")

    def logits(self, row: int) -> NDArray[np.float32]:
        return np.ctypeslib.as_array(self._api.ik_logits(self._pointer, row), (self._width,))


class IkLlama:
    """A model open in ik_llama.cpp; implements ``Library``."""

    def __init__(self, model: Path, kv: str) -> None:
        api = ctypes.CDLL(str(Path(sys.prefix) / LIBRARY))
        api.ik_open.restype = api.ik_context.restype = ctypes.c_void_p
        api.ik_logits.restype = ctypes.POINTER(ctypes.c_float)
        self._api, self._eight_bits = api, kv == "q8_0"
        self._model = ctypes.c_void_p(api.ik_open(str(model).encode()))
        if not self._model:
            raise RuntimeError(f"ik_llama.cpp cannot open {model}")
        self._width = api.ik_vocabulary(self._model)

    @contextmanager
    def context(self, sequences: int, outputs: int, load: Load) -> Iterator[_Context]:
        api, room = self._api, sequences * load.room
        made = api.ik_context(self._model, load.threads, room, sequences, BATCH, self._eight_bits)
        pointer = ctypes.c_void_p(made)
        if not pointer:
            raise RuntimeError("ik_llama.cpp made no context")
        try:
            yield _Context(api, pointer, self._width)
        finally:
            api.ik_close(pointer)


if __name__ == "__main__":
    main(__doc__, IkLlama)
