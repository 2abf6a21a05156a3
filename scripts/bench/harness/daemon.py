"""A daemon of one's own with the sample documents, and what can be seen of it from outside."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from edge_rag.client import Client, ClientError
from scripts.bench.harness.processors import on

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
_EDGE_RAG = (sys.executable, "-m", "edge_rag.cli.main")
_ADDED = "measured"
_MIB = 1 << 20


@dataclass
class Watched:
    """What was seen of a daemon, a look a second.

    Attributes:
        resident_mib: Resident memory.
        fill: The fullest that any stage's queue was, as share of its capacity.
        unanswered: Looks that got no answer.
    """

    resident_mib: list[float] = field(default_factory=list)
    fill: float = 0.0
    unanswered: int = 0


@dataclass(frozen=True)
class Daemon:
    """A running daemon.

    Attributes:
        address: HOST:PORT.
        local: unix:PATH, for looking at it while the other is under load.
        process: The process.
    """

    address: str
    local: str
    process: psutil.Process

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Looks at it every second."""
        seen, done = Watched(), threading.Event()

        def look() -> None:
            with Client(self.local, timeout_s=10) as client:
                while not done.wait(1):
                    seen.resident_mib.append(self.process.memory_info().rss / _MIB)
                    try:
                        stages = client.status().stages
                    except ClientError:
                        seen.unanswered += 1
                        continue
                    seen.fill = max(seen.fill, *(stage.waiting / stage.capacity for stage in stages))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield seen
        finally:
            done.set()
            looking.join()


@contextmanager
def daemon(
    config: str = "", processors: frozenset[int] | None = None, generator: Path | None = None
) -> Iterator[Daemon]:
    """Runs a daemon with the sample documents in it.

    Args:
        config: Settings, TOML.
        processors: What it works on; None where this process does.
        generator: Folder of a model that it generates with; None for its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = place / "edge-rag.toml"
        local = f"unix:{place}/socket"
        if generator is not None:
            _add(generator, place / "data")
            config += f'[models]\ngenerator = "{_ADDED}"\n'
        file.write_text(f'listen = "127.0.0.1:0"\nlocal_listen = "{local}"\n{config}')
        command = [*on(processors), *_EDGE_RAG, "serve", "--config", str(file)]
        with (place / "log").open("w") as log:
            started = subprocess.Popen(
                [*command, "--data-dir", str(place / "data")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            assert started.stdout is not None
            said = next((line for line in started.stdout if "serving on" in line), None)
            if said is None:
                raise SystemExit((place / "log").read_text())
            address = said.split(" serving on ")[1].split(" and ")[0].strip()
            running = Daemon(address, local, psutil.Process(started.pid))
            with Client(address) as client:
                for path in sorted(SAMPLES.iterdir()):
                    if path.is_file():
                        client.ingest(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]
            yield running
        finally:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def _add(generator: Path, data: Path) -> None:
    adding = [*_EDGE_RAG, "models", "add", str(generator), "--name", _ADDED, "--data-dir", str(data)]
    subprocess.run(adding, check=True, stdout=subprocess.DEVNULL)
