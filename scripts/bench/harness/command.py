"""What all command lines of benchmarks share: the parser, where data and models are, tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parents[3]
DATA: Final = Path(os.environ.get("EDGE_RAG_SHARED", ROOT.parent / "shared")) / "data"
SQUAD_FILE: Final = DATA / "xquad-a.json"
"""Half of XQuAD's English part; a file of the same form is named with ``--data``."""

XQUAD: Final = DATA / "xquad-a"
"""A folder with the same half in several languages: LANG.json, or all articles as xquad.LANG.json."""

ENCODER: Final = ROOT / "models" / "multilingual-e5-small"
SAMPLES: Final = ROOT / "deploy" / "samples"
SMALL_GENERATOR: Final = ROOT / "tests" / "fixtures" / "quoter"
"""The tests' language model: small, and of no use but for its speed."""

_WIDTH: Final = 150
"""Columns of a table that goes to a file."""


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encoder", type=Path, default=ENCODER, help="model folder [%(default)s]")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)


def require_file(file: Path) -> None:
    if not file.is_file():
        raise SystemExit(f"{file} is not there: name a file in SQuAD format with --data")


def console(stderr: bool = True) -> Console:
    found = Console(stderr=stderr)
    if not found.is_terminal:
        found.width = _WIDTH
    return found


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table; the first column is to the left."""
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    console(stderr=False).print(table)


def print_json(found: Any) -> None:
    print(json.dumps(_plain(found)))


def _plain(found: Any) -> Any:
    if is_dataclass(found) and not isinstance(found, type):
        return asdict(found)
    if isinstance(found, Mapping):
        return {str(key): _plain(value) for key, value in found.items()}
    return [_plain(value) for value in found] if isinstance(found, list | tuple) else found
