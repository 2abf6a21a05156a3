"""Makes the data directories of ``tests/fixtures/data-directories``: one a schema, by the code that wrote that schema.

Checks each commit out, runs its daemon, has documents brought in, replaced and deleted through its command line, notes
what the daemon then says it holds, and ends it with SIGKILL, so that the log of the database is as a crash leaves it.
From schema 5 on documents also wait in a job. A commit before which the operators changed needs a library of its own;
since schema 1 they have not.

Run it inside the development environment when a migration was appended:

    python -m scripts.make_old_data 8:019d81b
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "tests" / "fixtures" / "data-directories"
RELEASES: Final = {
    1: "2589e5b",
    2: "356fc44",
    3: "31ddc6f",
    4: "ce61229",
    5: "39a953d",
    6: "2742b37",
    7: "e685617",
    8: "019d81b",
}
"""The last commit of each schema, but for the newest."""

METADATA_SINCE, JOBS_SINCE, TOKENS_SINCE, COLLECTIONS_SINCE = 3, 5, 6, 7

DOCUMENTS: Final = {
    "default": {
        "pump.md": "# Pump P-101\n\nThe bearings are greased every 2,000 operating hours.\n\n"
        "## Seal\n\nThe mechanical seal is flushed with clean water at 2.5 bar.\n",
        "valve.md": "# Valve\n\nThe relief valve opens at 6 bar.\n",
        "withdrawn.txt": "The old limit was 9 bar. It is withdrawn.\n",
        "notes/duty.txt": "The duty electrician of the night shift is Ms Ødegård.\n",
    },
    "boiler": {"boiler.html": "<h1>Boiler</h1><p>The boiler is blown down every Monday.</p>"},
}
REPLACED: Final = {"valve.md": "# Valve\n\nThe relief valve opens at 7 bar since the overhaul.\n"}
GENERATOR: Final = "quoter"
WAITING: Final = {
    "a-long.txt": "".join(f"Inspection {number}: tank {number % 7} was found dry.\n\n" for number in range(100)),
    "late.txt": "The emergency generator is tested every first Tuesday.\n",
}


@dataclass(frozen=True)
class Daemon:
    """A daemon of an old checkout."""

    checkout: Path
    data: Path
    address: str
    process: int

    def edge_rag(self, *arguments: str) -> str:
        """Runs a command of the old command line against it."""
        return command_line(self.checkout, *arguments, "--server", self.address)


def command_line(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "edge_rag.cli.main", *arguments], check=False, cwd=checkout, env=environment(checkout),
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def environment(checkout: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(checkout)}


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    checkout = folder / "checkout"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, commit], cwd=ROOT, check=True)
    try:
        import edge_rag.ops

        (library,) = Path(edge_rag.ops.__path__[0]).glob("libedge_rag_ops.*")
        shutil.copy(library, checkout / "edge_rag" / "ops")
        yield checkout
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


@contextmanager
def running(checkout: Path, data: Path) -> Iterator[Daemon]:
    """Runs the daemon; ends it with SIGKILL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edge_rag.cli.main", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)],
        cwd=checkout, env=environment(checkout), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        if found is None:
            raise SystemExit(f"the daemon of {checkout} did not start")
        yield Daemon(checkout, data, found.group(), process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def written(folder: Path, texts: dict[str, str]) -> str:
    """Writes files into a fresh folder and returns it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def fill(daemon: Daemon, schema: int, folder: Path) -> None:
    """Brings documents in, replaces one and deletes one."""
    if schema >= COLLECTIONS_SINCE:
        daemon.edge_rag("collections", "create", "boiler", "--chunk-tokens", "160", "--description", "The boiler house")
    meta = ("--meta", "year=2020", "--meta", "tag=pump") if schema >= METADATA_SINCE else ()
    for collection, texts in DOCUMENTS.items():
        given = meta if collection == "default" else ()
        daemon.edge_rag("ingest", written(folder, texts), "--collection", collection, *given)
    daemon.edge_rag("ingest", written(folder, REPLACED))
    daemon.edge_rag("docs", "delete", "withdrawn.txt")


_HAND_OVER: Final = """
import io, json, os, signal, sys
from edge_rag.client import Client
from edge_rag.client.calls.ingest import OutgoingDocument
texts = json.load(sys.stdin)
documents = [OutgoingDocument(name, lambda text=text: io.BytesIO(text.encode())) for name, text in texts.items()]
with Client(sys.argv[1]) as client:
    for number, _ in enumerate(client.start_ingest(documents)):
        if number == len(texts):
            os.kill(int(sys.argv[2]), signal.SIGKILL)
            break
"""


def leave_waiting(daemon: Daemon) -> None:
    """Hands documents over and kills the daemon once the last is accepted, while it works on the first."""
    subprocess.run(
        [sys.executable, "-c", _HAND_OVER, daemon.address, str(daemon.process)],
        check=True, cwd=daemon.checkout, env=environment(daemon.checkout), input=json.dumps(WAITING), text=True,
    )  # fmt: skip


def held(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """Returns what the old daemon says of its documents, with their text, by collection and name."""
    records: dict[str, dict[str, Any]] = {}
    for collection in DOCUMENTS:
        listed = json.loads(daemon.edge_rag("docs", "list", "--collection", collection, "--json"))["documents"]
        records[collection] = {
            record["name"]: record
            | {
                "text": json.loads(
                    daemon.edge_rag("docs", "show", record["name"], "--collection", collection, "--json")
                )["text"]
            }
            for record in listed
        }
    return records


def make(schema: int, commit: str) -> Path:
    """Makes the archive of a schema's data directory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        with checked_out(commit, folder) as checkout:
            command_line(checkout, "models", "use", "generator", GENERATOR, "--data-dir", str(data))
            tokens = []
            if schema >= TOKENS_SINCE:
                tokens = ["ward-3"]
                command_line(
                    checkout, "token", "create", "--name", *tokens, "--collections", "boiler", "--data-dir", str(data)
                )
            with running(checkout, data) as daemon:
                fill(daemon, schema, folder / "files")
                documents = held(daemon)
                if schema >= JOBS_SINCE:
                    leave_waiting(daemon)
        expected = {
            "schema": schema,
            "commit": commit,
            "documents": documents,
            "waiting": WAITING if schema >= JOBS_SINCE else {},
            "tokens": tokens,
            "generator": GENERATOR,
        }
        (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False))
        FOLDER.mkdir(exist_ok=True)
        archive = FOLDER / f"schema-{schema}.tar.xz"
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            tar.add(folder / "expected.json", "expected.json")
            tar.add(data, "data", filter=without_what_passes)
    return archive


def without_what_passes(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out SQLite's shared memory, which a loss of power would not leave, and who made the archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("-shm") else member


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the data directories of tests/fixtures/data-directories.")
    parser.add_argument("releases", nargs="*", metavar="SCHEMA:COMMIT", help="which to make; without any, all of them")
    chosen = parser.parse_args().releases
    pairs = [pair.split(":") for pair in chosen] or [(str(schema), commit) for schema, commit in RELEASES.items()]
    for schema, commit in pairs:
        archive = make(int(schema), commit)
        print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
