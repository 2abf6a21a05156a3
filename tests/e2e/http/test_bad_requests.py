"""Requests that no honest client sends: each is refused, and others are answered meanwhile."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.support.running_daemon import RunningDaemon, start_daemon

HTTP = '[http]\nenabled = true\naddress = "127.0.0.1:0"\nhosts = ["box.lan"]\n[limits]\nmessage_kib = 512\n'
CHAT = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with start_daemon(folder / "data", folder / "log", HTTP) as running:
        yield running


def place(daemon: RunningDaemon) -> tuple[str, int]:
    host, _, port = daemon.http.removeprefix("http://").rpartition(":")
    return host, int(port)


def answer(daemon: RunningDaemon, sent: bytes) -> bytes:
    """Sends bytes and returns all that is answered until the server closes the connection."""
    with socket.create_connection(place(daemon), timeout=30) as connection:
        received = b""
        try:
            connection.sendall(sent)
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:
            pass
        return received


def status(daemon: RunningDaemon, method: str = "GET", path: str = "/v1/models", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*place(daemon), timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7480", "box.lan:7480"])
def test_the_box_is_called_by_its_addresses_and_names(daemon: RunningDaemon, host: str) -> None:
    assert status(daemon, host=host)[0] == 200


def test_a_site_that_points_its_name_at_the_box_is_refused(daemon: RunningDaemon) -> None:
    code, text = status(daemon, host="evil.example")
    assert code == 403
    assert "http.hosts" in text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:81"])
def test_a_page_of_another_site_is_refused_and_gets_no_cors(daemon: RunningDaemon, origin: str) -> None:
    connection = http.client.HTTPConnection(*place(daemon), timeout=30)
    try:
        connection.request("GET", "/v1/models", headers={"host": "localhost", "origin": origin})
        response = connection.getresponse()
        assert response.status == 403
        assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control")]
    finally:
        connection.close()
    assert status(daemon, host="localhost", origin="http://localhost")[0] == 200


@pytest.mark.parametrize("path", ["/documents/../../../etc/passwd", "/documents/%2e%2e%2fetc%2fpasswd", "/documents//"])
def test_a_path_never_leads_to_a_file(daemon: RunningDaemon, path: str) -> None:
    code, text = status(daemon, path=path, host="localhost")
    assert code in (400, 404)
    assert "root:" not in text


@pytest.mark.parametrize("query", ["start=-1", "start=1e9", "start=99999999999999999999", "start=1&end=x", "start=²"])
def test_a_position_that_is_none_is_refused_by_name(daemon: RunningDaemon, query: str) -> None:
    code, text = status(daemon, path=f"/documents/x?{query.replace('²', '%C2%B2')}", host="localhost")
    assert (code, json.loads(text)["error"]["param"] in ("start", "end")) == (400, True)


def test_what_is_not_http_or_has_two_lengths_is_refused(daemon: RunningDaemon) -> None:
    for sent in (
        b"\x16\x03\x01\x02\x00" * 40 + b"\r\n\r\n",
        f"{CHAT}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}".encode(),
        f"{CHAT}connection: close\r\ncontent-length: 2\r\nx: {'a' * 17_000}\r\n\r\n{{}}".encode(),
        b"GET /v1/models HTTP/1.1\r\n\r\n",
    ):
        assert answer(daemon, sent).startswith(b"HTTP/1.1 400")
    assert status(daemon, host="localhost")[0] == 200


@pytest.mark.parametrize(
    "rest",
    [
        "content-length: 600000\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n" + f"10000\r\n{'a' * 65536}\r\n" * 9 + "0\r\n\r\n",
    ],
    ids=["announced", "in chunks"],
)
def test_a_body_over_the_limit_is_refused_by_its_setting(daemon: RunningDaemon, rest: str) -> None:
    found = answer(daemon, f"{CHAT}connection: close\r\n{rest}".encode())
    assert found.startswith(b"HTTP/1.1 400")
    assert b"limits.message_kib" in found


def test_json_that_never_closes_is_refused(daemon: RunningDaemon) -> None:
    body = "[" * 100_000
    found = answer(daemon, f"{CHAT}connection: close\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    assert found.startswith(b"HTTP/1.1 400")


def test_a_form_of_another_site_is_not_taken_for_json(daemon: RunningDaemon) -> None:
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    assert answer(daemon, f"{head}content-length: 2\r\n\r\n{{}}".encode()).startswith(b"HTTP/1.1 400")


def test_two_requests_at_once_on_one_connection_get_two_answers(daemon: RunningDaemon) -> None:
    one = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
    assert answer(daemon, f"{one}\r\n{one}connection: close\r\n\r\n".encode()).count(b"HTTP/1.1 200 OK") == 2
