"""Starts daemons to measure, and records their memory and queues."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from edge_rag.client import Client, ClientError
from scripts.bench.harness.command import SAMPLES
from scripts.bench.harness.processors import on

_MODULE = ("-m", "edge_rag")
ADDED = "measured"
"""Name of the generator that ``add_generator`` adds."""
_MIB = 1 << 20
_STOP_S = 60


class DaemonFailed(Exception):
    """The daemon did not start; the message ends with its log."""


@dataclass
class Watched:
    """Observations of a daemon, one per second.

    Attributes:
        resident_mib: Resident memory.
        fill: The largest ratio of queued to allowed requests of any stage.
        unanswered: Status calls without an answer.
    """

    resident_mib: list[float] = field(default_factory=list)
    fill: float = 0.0
    unanswered: int = 0


@dataclass(frozen=True)
class Daemon:
    """A running daemon.

    Attributes:
        address: HOST:PORT or unix:PATH.
        local: unix:PATH, for observing it while ``address`` is under load.
        process: The process.
        log: The file with its log.
        http: Where it serves HTTP, for example ``http://127.0.0.1:7480``; empty if it does not.
    """

    address: str
    local: str
    process: psutil.Process
    log: Path
    http: str = ""

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Observes it every second."""
        seen, done = Watched(), threading.Event()

        def watch() -> None:
            with Client(self.local, timeout_s=10) as client:
                while not done.wait(1):
                    seen.resident_mib.append(self.process.memory_info().rss / _MIB)
                    try:
                        stages = client.status().stages
                    except ClientError:
                        seen.unanswered += 1
                        continue
                    seen.fill = max(seen.fill, *(stage.waiting / stage.capacity for stage in stages))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            done.set()
            thread.join()


@contextmanager
def running(
    data: Path,
    config: str = "",
    *,
    listen: str | None = "127.0.0.1:0",
    prefix: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    tree: Path | None = None,
) -> Iterator[Daemon]:
    """Runs a daemon until the end of the block. Settings in the environment are not passed on."""
    log, file, local = data.with_suffix(".log"), data.with_suffix(".toml"), f"unix:{data}.socket"
    file.write_text(config)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_RAG_")}
    environment |= variables or {}
    if listen is not None:
        environment["EDGE_RAG_LOCAL_LISTEN"] = local
    command = [
        *prefix,
        sys.executable if tree is None else str(tree / ".venv" / "bin" / "python"),
        *_MODULE,
        "serve",
        "--config",
        str(file),
        "--data-dir",
        str(data),
        "--listen",
        listen or local,
    ]
    with log.open("w") as output:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True, env=environment, cwd=tree)
    try:
        assert started.stdout is not None
        line = next((line for line in started.stdout if "serving on" in line), None)
        if line is None:
            raise DaemonFailed(f"the daemon did not start:\n{log.read_text()[-2000:]}")
        address = line.split(" serving on ")[1].split(" and ")[0].strip()
        http = re.search(r"https?://\S+", line)
        yield Daemon(address, local, psutil.Process(started.pid), log, http.group() if http else "")
    finally:
        started.terminate()
        try:
            started.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        if started.stdout is not None:
            started.stdout.close()


@contextmanager
def daemon_with_samples(
    config: str = "", processors: frozenset[int] | None = None, generator: Path | None = None
) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        if generator is not None:
            config += add_generator(generator, data)
        with running(data, config, prefix=on(processors)) as daemon:
            ingest_samples(daemon.address)
            yield daemon


def ingest_samples(address: str) -> None:
    with Client(address) as client:
        for path in sorted(SAMPLES.iterdir()):
            if path.is_file():
                client.ingest(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]


def add_generator(generator: Path | str, data: Path) -> str:
    """Adds a generator to a data directory; returns the settings that choose it."""
    command = [sys.executable, *_MODULE, "models", "add", str(generator), "--name", ADDED, "--data-dir", str(data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return f'[models]\ngenerator = "{ADDED}"\n'
