"""Daemons for the tests; the shared one holds the sample documents in collection ``default``."""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from edge_rag.api.v1 import documents_pb2
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, start_daemon
from tests.e2e.support.secured_daemon import OPEN, SECRET, Box, edge_rag, token

_HERE = Path(__file__).parent

HTTP = '[http]\nenabled = true\naddress = "127.0.0.1:0"\nhosts = ["box.lan"]\n[limits]\nconcurrent_calls = 4\n'
SLOTS_OF_ONE_CALLER = 3
"""Of the four: the last one is for another caller."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.daemon)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with start_daemon(folder / "data", folder / "log") as running:
        taken = documents_pb2.INGEST_STATUS_ADDED
        assert {outcome.status for outcome in ingest(running.address, sample_documents())} == {taken}
        yield running


@pytest.fixture(scope="session")
def http_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Serves HTTP and the console; its collection ``default`` has the sample documents and nothing else."""
    folder = tmp_path_factory.mktemp("http-daemon")
    with start_daemon(folder / "data", folder / "log", HTTP) as running:
        ingest(running.address, sample_documents())
        yield running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningDaemon]]:
    """Starts daemons of a test's own; ends those that still run."""
    started: list[RunningDaemon] = []

    def start_one(
        data_dir: Path | None = None,
        config: str = "",
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        models: Mapping[str, str] | None = None,
    ) -> RunningDaemon:
        log = tmp_path / f"log-{len(started)}"
        data = data_dir or tmp_path / "data"
        started.append(start_daemon(data, log, config, environment, prefix=prefix, models=models))
        return started[-1]

    yield start_one
    for running in started:
        running.kill()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box on the network: galley.txt in collection a, reactor.txt in collection b."""
    folder = tmp_path_factory.mktemp("box")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {
        "admin": token("admin", data, "--roles", "admin"),
        "reader-a": token("reader-a", data, "--collections", "a"),
        "writer-a": token("writer-a", data, "--collections", "a", "--roles", "writer"),
        "reader": token("reader", data),
        "peer": token("peer", data, "--roles", "peer"),
        "batch": token("batch", data, "--priority-max", "batch", "--collections", "a"),
        "rare": token("rare", data, "--quota", "2 requests/min"),
        "frugal-peer": token("frugal-peer", data, "--roles", "peer", "--quota", "500 tokens/min"),
    }
    config = f'local_listen = "unix:{folder}/socket"\n[tls]\nalways = true\n'
    config += '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
    with start_daemon(data, folder / "log", config) as running:
        ingest(f"unix:{folder}/socket", {"galley.txt": OPEN.encode()}, "a")
        ingest(f"unix:{folder}/socket", {"reactor.txt": SECRET.encode()}, "b")
        yield Box(running, data, tokens)
