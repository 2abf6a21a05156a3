"""Asks questions over manuals of Debian's documentation packages and shows what a reader said of the answers.

    python -m scripts.bench.quality.manuals                             # sixty questions, a daemon of this checkout
    python -m scripts.bench.quality.manuals --set held_out              # thirty others, which nothing was tuned on
    python -m scripts.bench.quality.manuals --keep FOLDER --tree OTHER  # of another one; manuals and data are kept
    python -m scripts.bench.quality.manuals --report answers            # also writes answers.json and answers.md
    python -m scripts.bench.quality.manuals --verdicts answers.json     # keeps what a reader filled in there

The manuals are ingested into a daemon with default settings, and each question is asked with `edge-rag ask` without
options but the daemon's address. Printed, by kind of question: how many answers hold what is expected, how many a
reader has read, and how many of these are right by the rubric in the README beside this file. An answer that nobody
has read counts as not right: fill in ``right`` and ``why`` of the report and keep them with ``--verdicts``. Ends with
status 1 if fewer than 80% of all answers are right, with 0 and the reason where the manuals cannot be had.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from scripts.bench.harness.daemon import running
from scripts.bench.quality.manuals.archive import NoManuals, put_manuals, read_packages
from scripts.bench.quality.manuals.judging import (
    SETS,
    Judged,
    Question,
    add_verdicts,
    as_json,
    as_markdown,
    folder_of,
    judge,
    read_questions,
    read_verdicts,
)

REPOSITORY: Final = Path(__file__).resolve().parents[4]
LEAST_RIGHT: Final = 0.80
"""Share of all answers that must be right."""

_ASK_TIMEOUT_S: Final = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default=SETS[0], help="which questions")
    parser.add_argument("--keep", type=Path, help="folder of manuals and data directory; default: a temporary one")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="checkout, with its own .venv, that is asked")
    parser.add_argument("--report", type=Path, help="name of the report without its suffix")
    parser.add_argument("--verdicts", type=Path, help="a report's JSON that a reader has filled in; nothing is asked")
    options = parser.parse_args()
    if options.verdicts is not None:
        print(f"{add_verdicts(options.verdicts, folder_of(options.set))} verdicts kept")
        return 0
    listed = folder_of(options.set)
    questions = read_questions(listed)
    with ExitStack() as stack:
        folder = (options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve() / options.set
        try:
            put_manuals(read_packages(listed), folder / "manuals")
        except NoManuals as reason:
            print(f"skipped: {reason}")
            return 0
        answers = ask(questions, folder, options.tree.resolve())
    judged = judge(questions, answers, read_verdicts(listed))
    report = as_markdown(judged)
    if options.report is not None:
        options.report.with_suffix(".json").write_text(as_json(judged), encoding="utf-8")
        options.report.with_suffix(".md").write_text(report, encoding="utf-8")
    print(report.split("\n## ", 1)[0])
    return 0 if right_share(judged) >= LEAST_RIGHT else 1


def right_share(judged: tuple[Judged, ...]) -> float:
    """Returns the share of all answers that a reader found right; unread ones are not."""
    return sum(each.verdict is not None and each.verdict.right for each in judged) / len(judged)


def ask(questions: tuple[Question, ...], folder: Path, tree: Path) -> list[str]:
    """Returns what the command line of a checkout prints for each question."""
    command = [str(tree / ".venv" / "bin" / "python") if tree != REPOSITORY else sys.executable, "-m", "edge_rag"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_RAG_")}

    def call(*arguments: str, cwd: Path) -> str:
        return subprocess.run(
            [*command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=True
        ).stdout

    data = folder / "data"
    with running(data, tree=tree if tree != REPOSITORY else None) as daemon:
        server = ("--server", daemon.local)
        # What lies there unchanged is not stored again, so a kept data directory costs a look at each file.
        call("ingest", *server, ".", cwd=folder / "manuals")
        return [call("ask", *server, "--timeout", str(_ASK_TIMEOUT_S), each.text, cwd=tree) for each in questions]


if __name__ == "__main__":
    raise SystemExit(main())
