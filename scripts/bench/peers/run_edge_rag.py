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
        from edge_rag.runtime.decoder.model_input import PackedStep
        from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
        from edge_rag.runtime.lowering.geometry import read_geometry
        from edge_rag.runtime.session.sessions import configure_thread_pool

        configure_thread_pool(load.threads)
        width = -(-load.room // read_geometry(model).page_tokens)
        self._make_step = PackedStep
        self._decoder = PagedDecoder.open(model, load.sequences * width)
        self._table = np.arange(load.sequences * width, dtype=np.int32).reshape(load.sequences, width)
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
            self._run(np.arange(sequences), prompts[:, position % context], position)
            seconds.append(time.perf_counter() - started)
        return seconds

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        """Computes a text in one step."""
        return self._run(np.array([0]), text, 0, every=True).copy()

    def _fill(self, sequence: int, prompt: NDArray[np.int64]) -> None:
        for begin in range(0, len(prompt), self._step_tokens):
            self._run(np.array([sequence]), prompt[begin : begin + self._step_tokens], begin)

    def _run(
        self, sequences: NDArray[np.int64], tokens: NDArray[np.int64], begin: int, every: bool = False
    ) -> NDArray[np.float32]:
        """Runs tokens of equally many positions from ``begin`` on for each sequence.

        Returns:
            The logits of each sequence's last token, or of every token.
        """
        count, size = tokens.size // sequences.size, self._decoder.page_tokens
        positions = np.arange(begin, begin + count, dtype=np.int32)
        table = self._table[sequences]
        slots = table[:, positions // size] * size + positions % size
        ends = np.arange(sequences.size + 1, dtype=np.int32) * count
        return self._decoder.run(
            self._make_step(
                np.ascontiguousarray(tokens),
                np.tile(positions, sequences.size),
                slots.reshape(-1).astype(np.int32),
                ends,
                table,
                np.arange(tokens.size) if every else ends[1:].astype(np.int64) - 1,
            )
        )


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
