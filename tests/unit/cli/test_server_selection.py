"""Which daemon is called where none is named; the boxes are real TLS servers on loopback."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge_rag.access.certificates import CertificateFolder
from edge_rag.cli import options, server_selection
from edge_rag.cli.main import main
from edge_rag.client import CallStatus, ClientError
from edge_rag.client.credentials import KnownServer, KnownServers
from edge_rag.client.pairing import find_issuer
from edge_rag.client.server_identity import IdentityStatus, identify, is_server, reachable
from edge_rag.core.pairing_code import PairingCode
from edge_rag.discovery.announcer import FoundServer

TIMEOUT_S = 10.0


class TlsBox:
    """Answers TLS's greeting and keeps what is said after it."""

    def __init__(self, folder: Path) -> None:
        self.certificates = CertificateFolder(folder)
        self.certificates.make("box", ["box.lan"], datetime.now(UTC))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates.server.certificate, self.certificates.server.key)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def known(self, name: str, address: str | None = None) -> KnownServer:
        server_identity = self.certificates.server.identity(self.certificates.authority_certificate)
        return KnownServer(
            address=address or self.address,
            authority=server_identity.authority.decode(),
            token="erag_secret",
            server_name=server_identity.server_name,
            box=name,
        )

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.settimeout(TIMEOUT_S)
            try:
                with self._context.wrap_socket(plain, server_side=True) as stream:
                    self.heard += stream.recv(4096)
            except OSError:
                continue


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Callable[[str], TlsBox]]:
    boxes: list[TlsBox] = []

    def make(name: str) -> TlsBox:
        boxes.append(TlsBox(tmp_path / name))
        return boxes[-1]

    yield make
    for one in boxes:
        one.close()


@pytest.fixture(autouse=True)
def unused_default(monkeypatch: pytest.MonkeyPatch) -> str:
    """Replaces the default address with a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(server_selection, "DEFAULT_ADDRESS", address)
    return address


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default data directory; that of whoever runs the tests is not looked at."""
    monkeypatch.setenv("EDGE_RAG_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.delenv("EDGE_RAG_SERVER", raising=False)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run" / "edge-rag.sock"
    monkeypatch.setattr(server_selection, "SERVICE_SOCKET", path)
    return path


def selected(*arguments: str) -> str | None:
    @click.command()
    @options.server
    def command(server: str | None) -> None: ...

    with command.make_context("ask", list(arguments)) as context:
        server: str | None = context.params["server"]
        return server


def test_what_is_named_is_called(box: Callable[[str], TlsBox]) -> None:
    KnownServers().store(box("a").known("a"))
    assert selected("--server", "10.0.0.7:7421") == "10.0.0.7:7421"


def test_the_only_box_that_is_known_and_answers_is_called(box: Callable[[str], TlsBox]) -> None:
    one = box("a")
    KnownServers().store(one.known("a"))
    assert selected() == one.address
    assert one.heard == b""


def test_a_paired_box_comes_before_whatever_listens_on_loopback_and_is_named(
    box: Callable[[str], TlsBox], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = box("a")
    KnownServers().store(one.known("engine-room"))
    with socket.create_server(("127.0.0.1", 0)) as local:
        monkeypatch.setattr(server_selection, "DEFAULT_ADDRESS", f"127.0.0.1:{local.getsockname()[1]}")
        assert selected() == one.address
        assert f"engine-room at {one.address} answers" in capsys.readouterr().err
        KnownServers().remove(one.address)
        KnownServers().store(one.known("engine-room", "127.0.0.1:1"))
        assert selected() is None
        assert "no paired server answers: engine-room" in capsys.readouterr().err


def listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_the_unix_socket_of_the_own_data_directory_comes_before_that_of_the_service_and_all_addresses(
    box: Callable[[str], TlsBox], data: Path, service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = box("a")
    KnownServers().store(one.known("a"))
    with socket.create_server(("127.0.0.1", 0)) as local:
        monkeypatch.setattr(server_selection, "DEFAULT_ADDRESS", f"127.0.0.1:{local.getsockname()[1]}")
        with listen(service):
            assert selected() == f"unix:{service}"
            with listen(data / "edge-rag.sock"):
                assert selected() == f"unix:{data}/edge-rag.sock"
                assert selected("--server", "10.0.0.7:7421") == "10.0.0.7:7421"
                monkeypatch.setenv("EDGE_RAG_SERVER", "10.0.0.8:7421")
                assert selected() == "10.0.0.8:7421"
                monkeypatch.delenv("EDGE_RAG_SERVER")
            assert selected() == f"unix:{service}"
        assert selected() == one.address  # what killed daemons left is passed over


def test_where_nothing_answers_it_is_said_what_was_tried(data: Path, unused_default: str) -> None:
    listen(data / "edge-rag.sock").close()
    KnownServers().store(
        KnownServer(address="127.0.0.1:1", authority="", token="erag_secret", server_name="x", box="a")
    )
    with pytest.raises(ClientError) as refused:
        selected()
    for part in (f"unix:{data}/edge-rag.sock", unused_default, "a (last at 127.0.0.1:1)"):
        assert part in str(refused.value)


def test_where_nothing_is_known_the_default_is_called() -> None:
    assert selected() is None


def test_where_several_answer_they_are_listed(box: Callable[[str], TlsBox]) -> None:
    one, other = box("a"), box("b")
    for name, known in (("engine-room", one), ("galley", other)):
        KnownServers().store(known.known(name))
    with pytest.raises(ClientError) as refused:
        selected()
    assert refused.value.status is CallStatus.INVALID_ARGUMENT
    for part in (f"engine-room at {one.address}", f"galley at {other.address}", "--server"):
        assert part in str(refused.value)


def test_a_known_box_with_another_certificate_is_not_called(box: Callable[[str], TlsBox]) -> None:
    real, impostor = box("a"), box("b")
    known = real.known("a", impostor.address)
    assert is_server(real.known("a"), real.address, TIMEOUT_S)
    assert not is_server(known, impostor.address, TIMEOUT_S)
    said = FoundServer("a", (impostor.address,), "0.1.0", True, known.fingerprint())
    other = FoundServer("a", (impostor.address,), "0.1.0", True, "0" * 64)
    stranger = FoundServer("b", ("127.0.0.1:1",), "0.1.0", True, "0" * 64)
    gone = FoundServer("a", ("127.0.0.1:1",), "0.1.0", True, known.fingerprint())
    statuses = [one.status for one in identify((said, other, stranger, gone), [known], TIMEOUT_S)]
    assert statuses == [
        IdentityStatus.MISMATCH,
        IdentityStatus.MISMATCH,
        IdentityStatus.UNPAIRED,
        IdentityStatus.UNREACHABLE,
    ]
    assert impostor.heard == b""


def test_a_box_is_known_by_its_name_whatever_certificate_it_got_since(box: Callable[[str], TlsBox]) -> None:
    one = box("a")
    known = one.known("a")
    one.certificates.make("box", ["elsewhere.lan"], datetime.now(UTC))
    assert one.certificates.server.identity(one.certificates.authority_certificate).server_name == known.server_name
    assert KnownServers().servers() == ()
    KnownServers().store(known)
    KnownServers().store(replace(known, address="10.0.0.8:7421"))
    assert [server.address for server in KnownServers().servers()] == ["10.0.0.8:7421"]


def test_servers_that_an_earlier_version_kept_are_still_known(box: Callable[[str], TlsBox]) -> None:
    one, file = box("a"), KnownServers().path
    old = {"address": "box.lan:7421", "authority": one.known("a").authority, "token": "erag_secret"}
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"format": 1, "servers": [old]}))
    (known,) = KnownServers().servers()
    assert is_server(known, one.address, TIMEOUT_S)
    KnownServers().store(one.known("a"))
    assert [server.address for server in KnownServers().servers()] == [one.address, "box.lan:7421"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_boxes_that_change_places_are_both_still_known(box: Callable[[str], TlsBox]) -> None:
    one, other = box("a"), box("b")
    servers = KnownServers()
    servers.store(one.known("a", other.address))
    moved = servers.move(servers.servers()[0], one.address)
    servers.store(other.known("b", "10.0.0.8:7421"))
    servers.move(servers.servers()[0], one.address)
    assert {server.box: server.address for server in servers.servers()} == {"a": one.address, "b": one.address}
    assert [known.box for known in reachable(servers.servers(), TIMEOUT_S)] == ["a"]
    assert moved.token == "erag_secret"


def test_what_is_forgotten_is_not_known_any_more(box: Callable[[str], TlsBox]) -> None:
    one, other = box("a"), box("b")
    for name, known in (("a", one), ("b", other)):
        KnownServers().store(known.known(name))
    result = CliRunner().invoke(main, ["connect", one.address, "--forget", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["forgotten"]) == (0, True)
    assert [server.box for server in KnownServers().servers()] == ["b"]
    again = CliRunner().invoke(main, ["connect", one.address, "--forget"])
    assert (again.exit_code, other.address in again.stderr) == (4, True)


def test_a_code_finds_its_box_among_several_and_is_shown_to_none(box: Callable[[str], TlsBox]) -> None:
    one, other = box("a"), box("b")
    code = PairingCode.make(other.certificates.server.identity(other.certificates.authority_certificate).sha256)
    assert find_issuer(["127.0.0.1:1", one.address, other.address], code, TIMEOUT_S) == other.address
    with pytest.raises(ClientError, match="does not announce itself"):
        find_issuer([one.address], code, TIMEOUT_S)
    assert one.heard == other.heard == b""
