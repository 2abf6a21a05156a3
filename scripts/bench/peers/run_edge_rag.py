"""Measures this project: its decoder driven with packed steps, or the engine that the daemon runs.

The decoder alone is timed as llama.cpp is, logits out and nothing sampled; the engine as OpenVINO GenAI is, scheduled,
sampled and delivered.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.load import Load, Program, program_arguments, report


class PackedProgram:
    """The decoder with a page table of its own for each sequence."""

    def __init__(self, model: Path, load: Load) -> None:
        from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
        from edge_rag.runtime.lowering.geometry import read_geometry
        from edge_rag.runtime.session.sessions import configure_thread_pool
        from scripts.bench.harness.packed import packed_step, page_table

        configure_thread_pool(load.threads)
        self._packed_step = packed_step
        self._table = page_table(load.sequences, load.room, read_geometry(model).page_tokens)
        self._decoder = PagedDecoder.open(model, self._table.size)
        self._step_tokens = load.step_tokens

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        """Computes the prompt in steps of the load's size."""
        started = time.perf_counter()
        self._fill(0, prompt)
        return time.perf_counter() - started

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Computes the prompts one after the other, then steps with any tokens."""
        sequences, context = prompts.shape
        for sequence, prompt in enumerate(prompts):
            self._fill(sequence, prompt)
        seconds = []
        for position in range(context, context + steps):
            started = time.perf_counter()
            self._run(np.arange(sequences), prompts[:, position % context, None], position)
            seconds.append(time.perf_counter() - started)
        return seconds

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._run(np.array([0]), text[None], 0, every=True).copy()

    def _fill(self, sequence: int, prompt: NDArray[np.int64]) -> None:
        for begin in range(0, len(prompt), self._step_tokens):
            self._run(np.array([sequence]), prompt[None, begin : begin + self._step_tokens], begin)

    def _run(
        self, sequences: NDArray[np.int64], tokens: NDArray[np.int64], first: int, every: bool = False
    ) -> NDArray[np.float32]:
        step = self._packed_step(tokens, self._table[sequences], self._decoder.page_tokens, first, every)
        return self._decoder.run(step)


def main() -> None:
    parser = program_arguments(__doc__)
    parser.add_argument("--engine", action="store_true", help="measure the engine")
    arguments = parser.parse_args()

    def begin(load: Load) -> Program:
        if arguments.engine:
            from scripts.bench.peers.engine_program import EngineProgram

            return EngineProgram(arguments.model, load)
        return PackedProgram(arguments.model, load)

    report(arguments, begin)


if __name__ == "__main__":
    main()
