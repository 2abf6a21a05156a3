"""What is measured of a program, and what is made of several rounds. Standard library only: every peer runs it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figures:
    """One program, one process.

    Attributes:
        decode_many: Tokens a second of all sequences together.
        decode_one: Tokens a second of one sequence.
        prefill: Prompt tokens a second of one prompt.
        peak_memory: The process's largest resident set, bytes; pages of mapped files count.
        load: From before the first import of the engine's library to a model that takes requests, seconds.
    """

    decode_many: float
    decode_one: float
    prefill: float
    peak_memory: float
    load: float


MEASURES = tuple(field.name for field in fields(Figures))
LESS_IS_BETTER = frozenset({"peak_memory", "load"})


def write_figures(figures: Figures, target: Path) -> None:
    target.write_text(json.dumps(asdict(figures)), encoding="utf-8")


def read_figures(source: Path) -> Figures:
    """Reads what ``write_figures`` wrote."""
    found = json.loads(source.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or set(found) != set(MEASURES):
        raise ValueError(f"not the measures that were expected: {found!r}")
    for name, value in found.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise ValueError(f"{name} is {value!r}, must be a positive number")
    return Figures(**found)


def median_figures(rounds: Sequence[Figures]) -> Figures:
    return Figures(**{name: statistics.median(getattr(figures, name) for figures in rounds) for name in MEASURES})
