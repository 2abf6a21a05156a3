"""A program over the C API that llama.cpp and ik_llama.cpp share: what a context computes, and what is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.load import Load, program_arguments, report

KV_TYPES = ("f16", "q8_0")
BATCH = 2048
"""Most tokens of a call."""

Integers = NDArray[np.int64]


class Context(Protocol):
    """Room for the keys and values of some sequences."""

    def compute(self, tokens: Integers, positions: Integers, sequences: Integers, wanted: NDArray[np.bool_]) -> None:
        """Computes tokens [n] at their positions of their sequences, and the logits of those that are wanted."""
        ...

    def logits(self, row: int) -> NDArray[np.float32]:
        """Returns the logits after a token of the last call, float32 [vocabulary]; valid until the next one."""
        ...


class Library(Protocol):
    """A library with a model open."""

    def context(self, sequences: int, outputs: int, load: Load) -> AbstractContextManager[Context]:
        """Makes a context for so many sequences and rows of logits a call, for the time of a ``with`` block."""
        ...


class LlamaProgram:
    """A library under the load: a fresh context for each thing that is measured."""

    def __init__(self, library: Library, load: Load) -> None:
        self._library, self._load = library, load
        with library.context(1, 1, load):
            pass

    def prefill(self, prompt: Integers) -> float:
        with self._library.context(1, 1, self._load) as context:
            started = time.perf_counter()
            _fill(context, 0, prompt)
            return time.perf_counter() - started

    def decode(self, prompts: Integers, steps: int) -> list[float]:
        """Computes the prompts one after the other, then steps with any tokens."""
        count, length = prompts.shape
        seconds = []
        with self._library.context(count, count, self._load) as context:
            for sequence, prompt in enumerate(prompts):
                _fill(context, sequence, prompt)
            for position in range(length, length + steps):
                started = time.perf_counter()
                tokens, positions = prompts[:, position % length], np.full(count, position)
                context.compute(tokens, positions, np.arange(count), np.ones(count, np.bool_))
                seconds.append(time.perf_counter() - started)
        return seconds

    def logits(self, text: Integers) -> NDArray[np.float32]:
        count = len(text)
        with self._library.context(1, count, self._load) as context:
            context.compute(text, np.arange(count), np.zeros(count, np.int64), np.ones(count, np.bool_))
            return np.stack([context.logits(row) for row in range(count)])


def _fill(context: Context, sequence: int, prompt: Integers) -> None:
    """Computes a prompt from position 0 on, and the last token's logits of each part."""
    for begin in range(0, len(prompt), BATCH):
        part = prompt[begin : begin + BATCH]
        last = np.arange(len(part)) == len(part) - 1
        context.compute(part, np.arange(begin, begin + len(part)), np.full(len(part), sequence), last)


def main(description: str | None, open_library: Callable[[Path, str], Library]) -> None:
    """Measures a library as the arguments of this process say; it is opened with a model and a type of ``KV_TYPES``."""
    parser = program_arguments(description)
    parser.add_argument("--kv", choices=KV_TYPES, default="q8_0", help="keys and values [%(default)s]")
    arguments = parser.parse_args()
    report(arguments, lambda load: LlamaProgram(open_library(arguments.model, arguments.kv), load))
