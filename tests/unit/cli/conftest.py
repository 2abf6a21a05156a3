from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from tests.unit.cli.scripted_daemon import ScriptedDaemon, start


@pytest.fixture
def scripted() -> Iterator[ScriptedDaemon]:
    daemon = ScriptedDaemon()
    server = start(daemon, "127.0.0.1:0")
    yield daemon
    server.stop(0).wait()


@pytest.fixture
def start_server() -> Iterator[Callable[[ScriptedDaemon, str], None]]:
    running: list[grpc.Server] = []
    yield lambda daemon, address: running.append(start(daemon, address))
    for server in running:
        server.stop(0).wait()


@pytest.fixture(autouse=True)
def no_known_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.delenv("EDGE_RAG_SERVER", raising=False)
    return CliRunner()
