"""The table of faults: what is promised for each, the tests that show it, and the figures last measured.

The rows stand in ``tests/faults/table.toml``, the figures in ``tests/faults/measured.json``. A test adds a figure to
its row with pytest's ``record_property("measured", "resident memory +38 MiB")``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "tests" / "faults" / "table.toml"
FIGURES = ROOT / "tests" / "faults" / "measured.json"
PAGE = ROOT / "docs" / "reliability.md"
_BEGIN = "<!-- table: written by scripts/faults --write -->"
_END = "<!-- end of table -->"


@dataclass(frozen=True, slots=True)
class Row:
    """A fault.

    Attributes:
        key: Its name on the command line.
        fault: What happens.
        promise: What holds then.
        tests: Files of tests, or node ids.
        select: An expression for pytest's ``-k`` that selects tests among them; empty for all.
    """

    key: str
    fault: str
    promise: str
    tests: tuple[str, ...]
    select: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The last run of a row.

    Attributes:
        figure: The figures that its tests recorded, or how many passed.
        date: ``YYYY-MM-DD``.
        passed: Whether every test passed and at least one ran.
    """

    figure: str
    date: str
    passed: bool


def rows() -> tuple[Row, ...]:
    return tuple(
        Row(key, row["fault"], row["promise"], tuple(row["tests"]), row.get("select", ""))
        for key, row in tomllib.loads(ROWS.read_text()).items()
    )


def stored() -> dict[str, Result]:
    return (
        {key: Result(**figure) for key, figure in json.loads(FIGURES.read_text()).items()} if FIGURES.exists() else {}
    )


def run(row: Row, seconds: int | None) -> Result:
    """Runs the tests of a row."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        selection = ["-k", row.select] if row.select else []
        environment = {**os.environ, **({} if seconds is None else {"EDGE_RAG_SOAK_SECONDS": str(seconds)})}
        arguments = ["-q", "-m", "not convert", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "--hypothesis-profile=thorough", *arguments, *selection, *row.tests]
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        if not report.exists():
            return Result(ended.stdout.strip()[-400:], date, False)
        if ended.returncode:
            print(ended.stdout[-4000:], file=sys.stderr)
        return _result(ElementTree.parse(report).getroot(), date, ended.returncode == 0)


def _result(report: ElementTree.Element, date: str, succeeded: bool) -> Result:
    cases = list(report.iter("testcase"))
    failed = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    ran = len(cases) - len(skipped)
    if failed:
        return Result("failed: " + ", ".join(failed), date, False)
    measured = [
        item.get("value", "") for case in cases for item in case.iter("property") if item.get("name") == "measured"
    ]
    text = f"{ran} test{'' if ran == 1 else 's'} passed" + (f", {len(skipped)} skipped" if skipped else "")
    return Result("; ".join([*measured, text]), date, succeeded and ran > 0)


def table(results: Mapping[str, Result]) -> str:
    lines = ["| fault | what is promised | command | last measured | date |", "|---|---|---|---|---|"]
    for row in rows():
        result = results.get(row.key, Result("", "", False))
        command = f"`scripts/faults --row {row.key}`"
        cells = (row.fault, row.promise, command, result.figure.replace("|", "/"), result.date)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(results: Mapping[str, Result]) -> str:
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{table(results)}\n{_END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status: 1 if a row failed, 2 for an unknown row."""
    parser = argparse.ArgumentParser(prog="scripts/faults", description="Runs the table of faults.")
    parser.add_argument("--row", action="append", help="run this row; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the rows without running them")
    parser.add_argument("--table", action="store_true", help="print the table with the figures just measured")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/reliability.md")
    parser.add_argument("--seconds", type=int, help="duration of each soak test, seconds")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows() if not options.row or row.key in options.row]
    if unknown := set(options.row or ()) - {row.key for row in chosen}:
        print(f"there is no row {', '.join(sorted(unknown))}; scripts/faults --list names them", file=sys.stderr)
        return 2
    if options.list:
        for row in chosen:
            print(f"{row.key}: {row.fault}\n  {row.promise}\n  {' '.join(row.tests)}")
        return 0
    results: dict[str, Result] = {}
    for row in chosen:
        results[row.key] = result = run(row, options.seconds)
        print(f"{'ok    ' if result.passed else 'FAILED'} {row.key}: {result.figure}", file=sys.stderr, flush=True)
    if options.write:
        kept = stored() | {key: result for key, result in results.items() if result.passed}
        plain = {row.key: _plain(kept[row.key]) for row in rows() if row.key in kept}
        FIGURES.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page(kept))
    if options.table:
        print(table(stored() | results))
    if options.json:
        print(json.dumps({key: _plain(result) for key, result in results.items()}, indent=1))
    return 0 if all(result.passed for result in results.values()) else 1


def _plain(result: Result) -> dict[str, str | bool]:
    return {"figure": result.figure, "date": result.date, "passed": result.passed}


if __name__ == "__main__":
    sys.exit(main())
