"""Compares this checkout's daemon with that of another checkout, in turn."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from scripts.bench.harness.daemon import Daemon, running

_REPOSITORY: Final = Path(__file__).resolve().parents[3]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options ``--other``, ``--data`` and ``--json``."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", _REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--json", action="store_true", help="print one object")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line; ends the process if the checkout or the file is not there."""
    options = parser.parse_args()
    options.other = options.other.resolve()
    if not (options.other / ".venv" / "bin" / "python").exists():
        parser.error(f"{options.other} has no .venv; run scripts/test there once")
    if not options.data.is_file():
        parser.error(f"{options.data} is not there: name a file in SQuAD format with --data")
    return options


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
    """Returns the medians of both sides and the median of the pairs' ratios, by what was measured.

    Args:
        this: What was measured in each round, ms; the same names in all of them.
        other: The same of the other side, round by round.

    Returns:
        For each name ``this_ms``, ``other_ms`` and ``ratio``, the other's by this one's; 0 where this one's are 0.
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
