"""llama.cpp under questions over passages, scheduled as its server does it, in an environment of its own.

Each slot keeps the sequence it had last. A request goes to the free slot whose sequence has the longest beginning in
common with it, and computes what comes after that; decodes and a part of a prompt share a batch. There are as many
slots as the cache has room for, of which so many run at once as in the other programs.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.harness.workload import Trace
from scripts.bench.reuse.serving import program

_BATCH = 512
_F16_BYTES = 2
_MOST_SLOTS = 64


@dataclass(eq=False)
class _Slot:
    """A sequence of the context: what its cache holds, and the request it works on."""

    id: int
    tokens: list[int] = field(default_factory=list)
    number: int | None = None
    pending: list[int] = field(default_factory=list)
    left: int = 0
    used: int = 0


class LlamaCppServer:
    """A context with many sequences, each in a stream of its own."""

    def __init__(self, arguments: argparse.Namespace, trace: Trace) -> None:
        api: Any = importlib.import_module("llama_cpp")
        self._api, self._most = api, arguments.slots
        api.llama_backend_init()
        self._silence = api.llama_log_callback(lambda level, text, user: None)
        api.llama_log_set(self._silence, ctypes.c_void_p(0))
        self._model = api.llama_model_load_from_file(str(arguments.model).encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot open {arguments.model}")
        head = api.llama_model_n_embd(self._model) // api.llama_model_n_head(self._model)
        width = 2 * api.llama_model_n_head_kv(self._model) * head * api.llama_model_n_layer(self._model)
        room = trace.room
        slots = max(self._most, min(_MOST_SLOTS, (arguments.cache_mib << 20) // (room * width * _F16_BYTES)))
        parameters = api.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch = slots * room, _BATCH
        parameters.n_seq_max = parameters.n_outputs_max = slots
        parameters.n_threads = parameters.n_threads_batch = arguments.threads
        parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.kv_unified = False
        self._context = api.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError("llama.cpp made no context")
        self._memory = api.llama_get_memory(self._context)
        self._batch = api.llama_batch_init(_BATCH, 0, 1)
        self._vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._slots = [_Slot(number) for number in range(slots)]
        self._waiting: list[tuple[int, list[int], int]] = []
        self._clock = 0

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        """Takes a request."""
        self._waiting.append((number, prompt.tolist(), answer_tokens))

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        """Runs a batch."""
        self._admit()
        running = [slot for slot in self._slots if slot.number is not None]
        if not running:
            time.sleep(wait_s)
            return []
        batch, asked, used = self._batch, [], 0
        for slot in sorted(running, key=lambda slot: len(slot.pending)):
            taken = slot.pending[: _BATCH - used]
            for token in taken:
                batch.token[used], batch.pos[used], batch.n_seq_id[used] = token, len(slot.tokens), 1
                batch.seq_id[used][0], batch.logits[used] = slot.id, False
                slot.tokens.append(token)
                used += 1
            del slot.pending[: len(taken)]
            if taken and not slot.pending:
                batch.logits[used - 1] = True
                asked.append((slot, used - 1))
        batch.n_tokens = used
        if self._api.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        return [self._say(slot, index) for slot, index in asked]

    def _admit(self) -> None:
        """Gives waiting requests free slots."""
        while self._waiting and sum(slot.number is not None for slot in self._slots) < self._most:
            number, prompt, answer_tokens = self._waiting.pop(0)
            free = [slot for slot in self._slots if slot.number is None]
            slot = max(free, key=lambda slot: (_common(slot.tokens, prompt), -slot.used))
            kept = min(_common(slot.tokens, prompt), len(prompt) - 1)
            self._api.llama_memory_seq_rm(self._memory, slot.id, kept, -1)
            self._clock += 1
            slot.tokens, slot.pending = prompt[:kept], prompt[kept:]
            slot.number, slot.left, slot.used = number, answer_tokens, self._clock

    def _say(self, slot: _Slot, index: int) -> tuple[int, bool]:
        logits = self._api.llama_get_logits_ith(self._context, index)
        token = int(np.argmax(np.ctypeslib.as_array(logits, (self._vocabulary,))))
        number, slot.left = slot.number, slot.left - 1
        if number is None:
            raise RuntimeError("a slot without a request spoke")
        if slot.left:
            slot.pending.append(token)
        else:
            slot.number = None
        return number, not slot.left


def _common(one: list[int], other: list[int]) -> int:
    """Returns how many tokens two sequences begin with alike."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


if __name__ == "__main__":
    program(__doc__, LlamaCppServer)
