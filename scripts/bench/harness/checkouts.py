"""Compares this checkout's daemon with that of another checkout, in turn."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from scripts.bench.harness.command import SQUAD_FILE
from scripts.bench.harness.daemon import Daemon, running


def add_checkout_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Adds ``--other``, ``--rounds`` and ``--data``."""
    parser.add_argument("--other", type=checkout, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=rounds, help="questions to each side [%(default)s]")
    parser.add_argument("--data", type=Path, default=SQUAD_FILE, help="file in SQuAD format")


def checkout(folder: str) -> Path:
    path = Path(folder).resolve()
    if not (path / ".venv" / "bin" / "python").exists():
        raise argparse.ArgumentTypeError(f"{path} has no .venv; run scripts/test there once")
    return path


@contextmanager
def both_running(other: Path) -> Iterator[dict[str, Daemon]]:
    """Runs this checkout's daemon (``this``) and another one's (``other``) with default settings, each without data."""
    with ExitStack() as stack:
        daemons = {}
        for name, tree in (("this", None), ("other", other)):
            data = Path(stack.enter_context(tempfile.TemporaryDirectory()), "data")
            daemons[name] = stack.enter_context(running(data, tree=tree))
        yield daemons


def in_turn(names: Iterable[str], number: int) -> list[str]:
    """Returns the sides in the order of a round; the order alternates."""
    return sorted(names, reverse=number % 2 == 0)


def medians(this: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Returns ``this_ms``, ``other_ms`` and the median ``ratio`` of the pairs (the other's by this one's; 0 where this
    one's are 0) of each measure, from the rounds of both sides, ms.
    """
    rows = {}
    for name in this[0]:
        pairs = [(ours[name], theirs[name]) for ours, theirs in zip(this, other, strict=True)]
        ratios = [theirs / ours for ours, theirs in pairs if ours]
        rows[name] = {
            "this_ms": median(ours for ours, _ in pairs),
            "other_ms": median(theirs for _, theirs in pairs),
            "ratio": median(ratios) if ratios else 0.0,
        }
    return rows


def print_rows(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Prints what ``medians`` returned."""
    for name, row in rows.items():
        print(f"{name:20s} {row['this_ms']:9.2f} ms  {row['other_ms']:9.2f} ms  x{row['ratio']:.2f}")
