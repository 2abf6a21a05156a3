"""Upgrades a box from an earlier commit to this checkout, and goes back by the backup that the upgrade made.

    python -m scripts.upgrade_and_back [COMMIT]

The commit's own code (c9adc14 without one) runs a daemon over the sample documents and answers a question. As
`scripts/install-service` does, its command line then makes the backup; it is stopped, and this checkout serves its data
directory: it has to have the documents with their texts, and to cite what was cited (it may cite more). Then the backup
is restored by the commit's code, which serves it and has to hold and answer what it did. Both run in this environment,
so the commit must run with its libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.fixtures.makers.make_old_data import ROOT, checked_out

COMMIT: Final = "c9adc14"
QUESTION: Final = "How often must the pump bearings be greased?"
SAMPLES: Final = ROOT / "deploy" / "samples"
_STOP_S: Final = 60


@dataclass(frozen=True)
class Box:
    """A data directory and the code that uses it.

    Attributes:
        code: Root of a checkout.
        data: The data directory.
        address: Of the daemon.
    """

    code: Path
    data: Path
    address: str = ""

    def run(self, *arguments: str) -> str:
        """Runs a command; returns what it prints."""
        environment = os.environ | {"PYTHONPATH": str(self.code), "EDGE_RAG_SERVER": self.address}
        command = [sys.executable, "-P", "-m", "edge_rag.cli.main", *arguments]
        done = subprocess.run(command, cwd=self.code, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    @contextmanager
    def serving(self) -> Iterator[Box]:
        """Runs its daemon."""
        command = [sys.executable, "-P", "-m", "edge_rag.cli.main", "serve", "--listen", "127.0.0.1:0"]
        with (self.data.parent / "log").open("w") as log:
            process = subprocess.Popen(
                [*command, "--data-dir", str(self.data)],
                cwd=self.code, env=os.environ | {"PYTHONPATH": str(self.code)},
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
            if found is None:
                raise SystemExit(f"the daemon did not start: {(self.data.parent / 'log').read_text()}")
            yield Box(self.code, self.data, found[0])
        finally:
            process.terminate()
            process.wait(_STOP_S)
            process.stdout.close()

    def held(self) -> dict[str, str]:
        names = [document["name"] for document in self.json("docs", "list")["documents"]]
        return {name: self.json("docs", "show", name)["text"] for name in names}

    def answer(self) -> tuple[str, list[tuple[str, int, int]]]:
        told = self.json("ask", QUESTION)
        return told["answer"], [(each["document"], each["start"], each["end"]) for each in told["citations"]]


def circle(commit: str) -> None:
    """Goes there and back."""
    with tempfile.TemporaryDirectory(prefix="edge-rag-upgrade-") as name:
        folder = Path(name)
        data, backup = folder / "data", folder / "before.edge-rag"
        with checked_out(commit, folder) as checkout:
            old, new = Box(checkout, data), Box(ROOT, data)
            with old.serving() as box:
                box.run("ingest", str(SAMPLES))
                documents, answer = box.held(), box.answer()
                box.run("backup", str(backup))
            print(f"{commit}: {len(documents)} documents; {answer[0]!r} {answer[1]}", flush=True)
            with new.serving() as box:
                held, (_, cited) = box.held(), box.answer()
            if held != documents or not set(answer[1]) <= set(cited):
                raise SystemExit(f"this checkout does not have the same documents, or cites {cited}")
            print(f"this checkout: the same documents; cited: {cited}", flush=True)
            old.run("restore", "--replace", str(backup), "--data-dir", str(data))
            with old.serving() as box:
                if box.held() != documents or box.answer() != answer:
                    raise SystemExit(f"{commit} does not have from the backup what it had")
            print(f"{commit} again, from the backup: the same documents, the same answer", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.upgrade_and_back",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commit", nargs="?", default=COMMIT, help="[default: %(default)s]")
    circle(parser.parse_args().commit)


if __name__ == "__main__":
    main()
