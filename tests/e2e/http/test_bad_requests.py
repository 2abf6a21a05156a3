"""Requests that no honest client sends: each is refused, and others are answered meanwhile."""

import http.client
import json
import socket
from contextlib import suppress

import psutil
import pytest

from tests.e2e.support.running_daemon import RunningDaemon

CHAT = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture
def daemon(http_daemon: RunningDaemon) -> RunningDaemon:
    return http_daemon


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


GET = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
SECOND = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
LENGTH = f"content-length: {len(SECOND)}\r\n"
AMBIGUOUS = {
    "tls": "\x16\x03\x01\x02\x00" * 40 + "\r\n\r\n",
    "http/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/0.9": "GET /v1/models\r\n\r\n",
    "http/1.2": GET.replace("1.1", "1.2") + "\r\n",
    "no host": "GET /v1/models HTTP/1.1\r\n\r\n",
    "two hosts": f"{GET}host: localhost\r\n\r\n",
    "two lengths": f"{CHAT}{LENGTH}content-length: 3\r\n\r\n{SECOND}",
    "a negative length": f"{CHAT}content-length: -1\r\n\r\n{SECOND}",
    "a length with a sign": f"{CHAT}content-length: +2\r\n\r\n{SECOND}",
    "a length and chunks": f"{CHAT}{LENGTH}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}",
    "two encodings": f"{CHAT}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n{SECOND}",
    "an unknown encoding": f"{CHAT}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n{SECOND}",
    "a disguised encoding": f"{CHAT}transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n{SECOND}",
    "chunks in http/1.0": CHAT.replace("1.1", "1.0") + f"transfer-encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}",
    "lines that end with LF": GET.replace("\r\n", "\n") + "\n",
    "one line that ends with LF": f"{GET}x: 1\n{LENGTH}\r\n{SECOND}",
    "one line that ends with CR": f"{GET}x: 1\r{LENGTH}\r\n{SECOND}",
    "a header on two lines": f"{GET}x: 1\r\n {LENGTH}\r\n{SECOND}",
    "a name with a space": f"{CHAT}content-length : {len(SECOND)}\r\n\r\n{SECOND}",
    "an indented first header": f"GET /v1/models HTTP/1.1\r\n host: localhost\r\n\r\n{SECOND}",
    "NUL in a header": f"{GET}x: a\0b\r\n\r\n",
    "NUL in a path": "GET /v1/\0models HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a space in a path": "GET /v1/models HTTP/1.1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a head over the limit": f"{GET}x: {'a' * 17_000}\r\n\r\n",
    "a path over the limit": f"GET /{'a' * 17_000} HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a size that is no number": f"{CHAT}transfer-encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n0\r\n\r\n{SECOND}",
    "a chunk that ends with LF": f"{CHAT}transfer-encoding: chunked\r\n\r\n2\n{{}}\r\n0\r\n\r\n{SECOND}",
    "a chunk longer than its size": f"{CHAT}transfer-encoding: chunked\r\n\r\n2\r\n{{}}x\r\n0\r\n\r\n{SECOND}",
    "an endless size": f"{CHAT}transfer-encoding: chunked\r\n\r\n{'0' * 20_000}",
    "an endless extension": f"{CHAT}transfer-encoding: chunked\r\n\r\n2;{'a' * 20_000}",
    "endless trailers": f"{CHAT}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nx: {'a' * 60_000}",
    "chunks of one byte": f"{CHAT}transfer-encoding: chunked\r\n\r\n" + "1\r\n \r\n" * 5_000,
}
"""Requests that are none, or that two servers may read in two ways."""


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_what_is_not_http_or_ambiguous_is_refused_and_ends_the_connection(daemon: RunningDaemon, sent: str) -> None:
    """The connection is closed: nothing that follows is taken for a second request. Who still sends may miss why."""
    found = answer(daemon, sent.encode("latin-1"))
    assert found.count(b"HTTP/1.1 ") <= 1
    assert found.startswith(b"HTTP/1.1 400 ") or (not found and len(sent) > 1 << 14)


def test_what_was_refused_is_said_as_errors_are(daemon: RunningDaemon) -> None:
    head, _, body = answer(daemon, AMBIGUOUS["a length and chunks"].encode()).partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body)["error"]["message"] == "the length of the body is given twice"


def test_a_body_that_breaks_off_behind_its_response_leaves_no_trace(daemon: RunningDaemon) -> None:
    """The refusal of the request is under way or done when the rest of the body turns out to be none."""
    for size in ("10000", "100000"):
        sent = f"{CHAT}origin: http://evil.example\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\n"
        found = answer(daemon, f"{sent}{'a' * 70_000}zz\r\n".encode())
        assert not found or found.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))
    assert "Traceback" not in daemon.log.read_text()


@pytest.mark.parametrize(
    ("method", "expected"), [("HEAD", 200), ("OPTIONS", 405), ("TRACE", 405), ("POST", 405), ("BREW", 405)]
)
def test_a_method_that_a_path_has_not_is_refused_without_cors(
    daemon: RunningDaemon, method: str, expected: int
) -> None:
    found = answer(daemon, GET.replace("GET", method).encode() + b"connection: close\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {expected} ".encode())
    assert b"access-control" not in head.lower()
    if expected == 405:
        assert b"allow: GET, HEAD" in head
        assert json.loads(body)["error"]["code"] == "method_not_allowed"
    else:
        assert body == b""


@pytest.mark.parametrize("target", ["http://evil.example/v1/models", "evil.example:443", "*", "//v1/models"])
def test_a_target_that_is_no_path_leads_nowhere(daemon: RunningDaemon, target: str) -> None:
    method = "CONNECT" if target.endswith(":443") else "GET"
    sent = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert answer(daemon, sent.encode()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_another_protocol_is_not_changed_to(daemon: RunningDaemon, protocol: str) -> None:
    sent = f"{GET}connection: upgrade, close\r\nupgrade: {protocol}\r\nsec-websocket-version: 13\r\n\r\n"
    found = answer(daemon, sent.encode())
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.count(b"HTTP/1.1 ") == 1


def test_a_body_for_a_path_that_takes_none_ends_the_connection(daemon: RunningDaemon) -> None:
    """Otherwise its sender keeps the event loop busy with bytes that nobody asked for."""
    for path, expected in (("/nothing", b"404"), ("/v1/models", b"405")):
        sent = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n{'a' * 100}"
        found = answer(daemon, sent.encode())
        assert found.startswith(b"HTTP/1.1 " + expected)
        assert found.count(b"HTTP/1.1 ") == 1


def test_a_hundred_megabytes_of_headers_are_refused_from_the_limit_on(daemon: RunningDaemon) -> None:
    before = psutil.Process(daemon.process.pid).memory_info().rss
    piece = b"".join(b"x-%07d: %s\r\n" % (number, b"a" * 1000) for number in range(1000))
    sent = 0
    with socket.create_connection(place(daemon), timeout=30) as connection, suppress(ConnectionError):
        connection.sendall(GET.encode())
        for _ in range(100):
            connection.sendall(piece)
            sent += len(piece)
    assert sent < 100 * len(piece)
    assert psutil.Process(daemon.process.pid).memory_info().rss - before < 4 << 20
    assert status(daemon, host="localhost")[0] == 200


@pytest.mark.parametrize(
    "rest",
    [
        "content-length: 1200000\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n" + f"10000\r\n{'a' * 65536}\r\n" * 17 + "0\r\n\r\n",
    ],
    ids=["announced", "in chunks"],
)
def test_a_body_over_the_limit_is_refused(daemon: RunningDaemon, rest: str) -> None:
    found = answer(daemon, f"{CHAT}connection: close\r\n{rest}".encode())
    assert found.startswith(b"HTTP/1.1 400")
    assert b"has more than 1,048,576 bytes" in found


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
