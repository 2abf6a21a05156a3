"""The load that every program is put under, in the same order with the same tokens. Needs NumPy and nothing else."""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.figures import Figures, write_figures

PREFILLS = 3
_WARM_TOKENS, _WARM_STEPS = 64, 4
_LOWEST_TOKEN, _TOO_HIGH_TOKEN = 10, 256
"""In every vocabulary, and past the tokens with a meaning of their own."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much of it."""

    threads: int
    context: int
    sequences: int
    steps: int
    step_tokens: int

    @property
    def lag(self) -> int:
        """Steps that the first of all prompts is ahead of the last when prefill and decoding share steps."""
        return -(-self.sequences * self.context // (self.step_tokens - self.sequences)) + 2

    @property
    def room(self) -> int:
        return self.context + self.steps + self.lag


class Program(Protocol):
    """An engine with a model open."""

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        """Computes a prompt [tokens]; returns the seconds to its first logits or token."""
        ...

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Computes prompts [sequences, tokens], then decodes all of them together.

        Returns:
            The seconds of each of ``steps`` steps in which every sequence gained one token and nothing else was done.
        """
        ...


@runtime_checkable
class GivesLogits(Protocol):
    """A program whose logits can be compared."""

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the logits after each token of a text, float32 [tokens, vocabulary]."""
        ...


def measure(load: Load, begin: Callable[[Load], Program]) -> Figures:
    """Opens a program and measures it, warm."""
    rng = np.random.default_rng(0)

    def prompts(sequences: int, tokens: int) -> NDArray[np.int64]:
        return rng.integers(_LOWEST_TOKEN, _TOO_HIGH_TOKEN, (sequences, tokens))

    started = time.perf_counter()
    program = begin(load)
    loaded_s = time.perf_counter() - started
    program.decode(prompts(1, _WARM_TOKENS), _WARM_STEPS)
    prefill_s = statistics.median(program.prefill(prompts(1, load.context)[0]) for _ in range(PREFILLS))
    one_s = statistics.median(program.decode(prompts(1, load.context), load.steps))
    many_s = statistics.median(program.decode(prompts(load.sequences, load.context), load.steps))
    return Figures(load.sequences / many_s, 1 / one_s, load.context / prefill_s, peak_memory_bytes(), loaded_s)


def peak_memory_bytes() -> int:
    """Returns the largest resident set this process has had, as Linux counts it (VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError("this system does not say how much memory a process had at most")
    return 1024 * int(found[1])


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that ``load_of`` and ``load_options`` speak of."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=1024, help="tokens of a prompt [%(default)s]")
    parser.add_argument("--sequences", type=int, default=8, help="prompts decoded together [%(default)s]")
    parser.add_argument("--steps", type=int, default=48, help="decode steps that are timed [%(default)s]")
    parser.add_argument("--step-tokens", type=int, default=1024, help="most tokens in a batched step [%(default)s]")


def load_of(arguments: argparse.Namespace) -> Load:
    return Load(*(getattr(arguments, field.name) for field in fields(Load)))


def load_options(load: Load) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in asdict(load).items()]


def program_arguments(description: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a measured program: a model, the load, and where the figures go."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--figures", type=Path, help="file to write the figures to")
    parser.add_argument("--texts", type=Path, help="texts (.npz of token ids) whose logits are written, not figures")
    parser.add_argument("--logits", type=Path, help="file (.npy) to write the logits of all texts to")
    add_load_arguments(parser)
    return parser


def report(arguments: argparse.Namespace, begin: Callable[[Load], Program]) -> None:
    """Measures a program and writes its figures where the arguments say; or the logits of texts."""
    if arguments.texts is not None:
        with np.load(arguments.texts) as texts:
            longest = max(texts[name].size for name in texts)
            program = begin(Load(arguments.threads, longest, 1, 0, arguments.step_tokens))
            if not isinstance(program, GivesLogits):
                raise SystemExit("this program gives no logits out")
            np.save(arguments.logits, np.concatenate([program.logits(texts[name]) for name in texts]))
        return
    write_figures(measure(load_of(arguments), begin), arguments.figures)
