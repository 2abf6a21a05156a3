import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc
from edge_rag.cli.main import main
from edge_rag.client import channel
from edge_rag.server.grpc.unix_socket import answers
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon

TLS = "[tls]\nalways = true\n"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data directory of the daemon, and of commands without options; nobody answers at the default address."""
    monkeypatch.setenv("EDGE_RAG_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.delenv("EDGE_RAG_SERVER", raising=False)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setattr(channel, "DEFAULT_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        yield tmp_path / "data"


def edge_rag(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.smoke
def test_commands_without_options_reach_the_daemon_of_their_data_directory_over_its_socket(
    start: Callable[..., RunningDaemon], data: Path
) -> None:
    assert edge_rag("tls", "init", "--host", "127.0.0.1").exit_code == 0
    assert edge_rag("token", "create", "--name", "somebody").exit_code == 0
    own = data / "edge-rag.sock"
    first = start(data, TLS)
    assert own.stat().st_mode & 0o777 == 0o600
    assert f"unix:{own}" in first.log.read_text()
    shown = edge_rag("status", "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["address"] == first.address
    created = edge_rag("collections", "create", "manuals")  # which needs the role admin
    assert created.exit_code == 0, created.output

    checked = edge_rag("doctor", "--json")
    (daemon,) = (check for check in json.loads(checked.stdout)["checks"] if check["name"] == "daemon")
    assert (daemon["verdict"], first.address in daemon["detail"]) == ("ok", True), daemon
    unpaired = edge_rag("status", "--server", first.address)
    assert (unpaired.exit_code, "wants credentials" in unpaired.stderr) == (3, True), unpaired.output
    assert "edge-rag connect" in unpaired.stderr

    with pytest.raises(AssertionError, match="in use by another daemon"):
        start(data, TLS)
    assert answers(own, 10), "a second daemon took the socket of the first one away"

    first.kill()
    assert own.exists()
    nobody = edge_rag("status")
    assert nobody.exit_code == 3
    assert "no daemon answers" in nobody.output

    second = start(data, TLS)
    with grpc.insecure_channel(f"unix:{own}") as calls:
        status = admin_pb2_grpc.AdminStub(calls).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)
    assert status.address == second.address
    assert second.stop() == 0
    assert not own.exists()


def test_a_taken_port_is_told_in_one_line_before_models_are_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(AssertionError) as ended:
        start_daemon(tmp_path / "data", tmp_path / "log", listen=f"127.0.0.1:{other.getsockname()[1]}")
    log = str(ended.value).partition("\n")[2].strip().splitlines()
    assert (len(log), "cannot be bound" in log[0]) == (1, True), log


def test_a_daemon_does_not_take_the_socket_of_another_one_away(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    settings = f'local_listen = "unix:{tmp_path}/socket"\n'
    start(tmp_path / "one", settings)
    with pytest.raises(AssertionError, match="another daemon listens on unix:"):
        start(tmp_path / "other", settings)
    assert answers(tmp_path / "socket", 10)
