"""Client certificates over HTTP: the name stands for a token, as over gRPC, and the authority can be replaced."""

import http.client
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.e2e.support.running_daemon import RunningDaemon
from tests.e2e.support.secured_daemon import edge_rag, token

WITHIN_S = 60.0
REFUSED = (ssl.SSLError, ConnectionError, http.client.HTTPException)
"""What a client without a valid certificate meets: an alert, or the end of the connection."""


def context(authority: Path, folder: Path | None = None, name: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority))
    if folder is not None:
        made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Client:
    """A client with one connection."""

    def __init__(self, running: RunningDaemon, shown: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        host, _, port = running.http.removeprefix("https://").rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=WITHIN_S)
        try:
            self._socket = shown.wrap_socket(plain, server_hostname=host, session=session)
        except BaseException:
            plain.close()
            raise

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._socket.session

    def status(self) -> int:
        self._socket.sendall(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        response.read()
        return response.status

    def close(self) -> None:
        self._socket.close()


def status(running: RunningDaemon, shown: ssl.SSLContext, session: ssl.SSLSession | None = None) -> int:
    with closing(Client(running, shown, session)) as client:
        return client.status()


def test_a_certificate_stands_for_the_token_of_its_name_while_that_and_its_authority_are_valid(
    start: Callable[..., RunningDaemon], stack: ExitStack, tmp_path: Path
) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    for authority in (data, other):
        edge_rag("tls", "init", "--host", "127.0.0.1", data=authority)
    token("ward-3", data, "--collections", "a")
    for name, authority in (("ward-3", data), ("stranger", data), ("ward-3", other)):
        edge_rag("tls", "client", name, "--directory", tmp_path / f"{authority.name}-{name}", data=authority)
    config = (
        '[tls]\nalways = true\nclient_certificates = true\nclient_authority = "{}"\n'
        '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
    )
    running = start(config=config.format(data / "tls" / "ca.pem"))
    ca = data / "tls" / "ca.pem"
    known = context(ca, tmp_path / "data-ward-3", "ward-3")
    renewed = context(ca, tmp_path / "other-ward-3", "ward-3")

    kept = stack.enter_context(closing(Client(running, known)))
    assert kept.status() == 200
    assert status(running, context(ca, tmp_path / "data-stranger", "stranger")) == 401
    for unknown in (context(ca), renewed):
        with pytest.raises(REFUSED):
            status(running, unknown)

    running.log.with_suffix(".toml").write_text(config.format(other / "tls" / "ca.pem"))
    running.process.send_signal(signal.SIGHUP)
    with running.log.open() as log:
        while "settings reloaded" not in log.readline():
            assert running.process.poll() is None
    assert status(running, renewed) == 200
    for session in (None, kept.session):
        with pytest.raises(REFUSED):
            status(running, known, session)

    edge_rag("token", "revoke", "ward-3", data=data)
    assert kept.status() == status(running, renewed) == 401
