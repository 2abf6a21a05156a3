"""The console as it is served: its page and files for callers without an identity, and sessions of browsers."""

import asyncio
import gzip
import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.server.http.credentials import COOKIE
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import Box, edge_rag, token

CONSOLE = Path(__file__).parents[3] / "edge_rag" / "console"
PHONES = 30
CONNECTIONS = 6
"""Connections to one host that browsers open at once."""

WITHIN_S = 120.0
MOST_ATTEMPTS = 600


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def trusted(box: Box) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(box.data / "tls" / "ca.pem"))


class Browser:
    """Sends requests as a browser does: with its cookie, and with the origin in each one that changes anything."""

    def __init__(self, box: Box) -> None:
        self._context = trusted(box)
        self.origin = box.running.http
        self.cookie = ""

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        has_origin: bool = True,
    ) -> Reply:
        place = urlsplit(self.origin)
        connection = http.client.HTTPSConnection(str(place.hostname), place.port, timeout=60, context=self._context)
        sent = {"cookie": self.cookie} if self.cookie else {}
        if has_origin and method not in ("GET", "HEAD"):
            sent["origin"] = self.origin
        if body is not None:
            sent["content-type"] = "application/json"
        with closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), {**sent, **(headers or {})})
            response = connection.getresponse()
            reply = Reply(response.status, response.headers, response.read())
        if given := reply.headers.get("set-cookie"):
            pair, *attributes = given.split("; ")
            self.cookie = "" if "Max-Age=0" in attributes else pair
        return reply

    def who(self) -> tuple[int, str]:
        found = self.send("GET", "/api/v1/whoami")
        return found.status, found.json.get("name", "")


@pytest.fixture
def browser(box: Box) -> Browser:
    return Browser(box)


def files_of(page: bytes) -> list[str]:
    """Returns the paths of all files of the console, below where its page says they are."""
    found = re.search(rb'data-base="([^"]+)"', page)
    assert found is not None
    base = found[1].decode()
    shipped = [path.relative_to(CONSOLE).as_posix() for path in CONSOLE.rglob("*") if path.is_file()]
    return [f"{base}/{path}" for path in sorted(shipped) if path != "index.html" and "__pycache__" not in path]


@pytest.mark.smoke
def test_the_page_is_for_anybody_in_their_language_and_allows_nothing_of_others(browser: Browser) -> None:
    page = browser.send("GET", "/", headers={"accept-language": "de-DE,de;q=0.9,en;q=0.5"})
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b'<html lang="de"' in page.body
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self' 'sha256-")
    assert policy.endswith("frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert "microphone=()" in page.headers["permissions-policy"]
    assert page.headers["vary"] == "accept-language, accept-encoding"
    assert page.headers["cache-control"] == "no-cache"
    head = browser.send("HEAD", "/", headers={"accept-language": "de"})
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", page.headers["etag"])
    again = browser.send("GET", "/", headers={"accept-language": "de", "if-none-match": page.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    english = browser.send("GET", "/", headers={"if-none-match": page.headers["etag"]})
    assert (english.status, english.headers["content-language"]) == (200, "en")


def test_each_file_is_served_as_it_is_installed_and_never_changes(browser: Browser) -> None:
    page = browser.send("GET", "/").body
    for path in files_of(page):
        plain = browser.send("GET", path)
        installed = CONSOLE / path.split("/", 3)[3]
        assert (plain.status, plain.body) == (200, installed.read_bytes()), path
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        packed = browser.send("GET", path, headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) < len(plain.body) or len(plain.body) < 100
        known = browser.send("GET", path, headers={"if-none-match": plain.headers["etag"]})
        assert (known.status, known.body) == (304, b"")


def test_nothing_else_is_served_as_a_file(browser: Browser) -> None:
    base = files_of(browser.send("GET", "/").body)[0].rsplit("/", 2)[0]
    other = "/console/0123456789abcdef/core/app.js"
    for path in (
        other,
        f"{base}/index.html",
        f"{base}/core",
        f"{base}/",
        f"{base}/../../etc/passwd",
        f"{base}/core/%2e%2e/%2e%2e/errors.py",
        f"{base}/core/..%2f..%2ferrors.py",
        f"{base}//etc/passwd",
        f"{base}/core/app.js%00",
    ):
        assert browser.send("GET", path).status == 404, path
    assert browser.send("POST", "/", {}).status == 405


def test_a_page_of_another_site_cannot_be_the_console(browser: Browser) -> None:
    assert browser.send("GET", "/", headers={"origin": "https://evil.example"}).status == 403


async def load(box: Box, context: ssl.SSLContext, paths: list[str]) -> list[int]:
    """Loads paths over one connection; returns the status of each."""
    place = urlsplit(box.running.http)
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port, ssl=context, local_addr=("127.0.5.1", 0), limit=1 << 20
    )
    try:
        found = []
        for path in paths:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {place.netloc}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            found.append(int(head.split(" ")[1]))
        return found
    finally:
        writer.close()
        with suppress(OSError):  # ssl.SSLError is one
            await writer.wait_closed()


async def test_thirty_phones_behind_one_address_load_the_console_at_once(box: Box, browser: Browser) -> None:
    files = files_of(browser.send("GET", "/").body)
    context = trusted(box)
    one_phone = [["/", *files[number::CONNECTIONS]] for number in range(CONNECTIONS)]
    async with asyncio.timeout(WITHIN_S):
        loaded = await asyncio.gather(*(load(box, context, paths) for paths in one_phone * PHONES))
    assert len(loaded) == PHONES * CONNECTIONS
    assert {status for each in loaded for status in each} == {200}


@pytest.mark.smoke
def test_a_token_begins_a_session_and_signing_out_ends_it(box: Box, browser: Browser) -> None:
    assert browser.who() == (401, "")
    reply = browser.send("POST", "/api/v1/session", {"token": box.tokens["reader"]})
    assert (reply.status, reply.json["name"]) == (200, "reader")
    assert box.tokens["reader"] not in reply.body.decode()
    pair, *attributes = reply.headers["set-cookie"].split("; ")
    assert pair.startswith(f"{COOKIE}=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"} < set(attributes)
    assert browser.who() == (200, "reader")
    assert browser.send("GET", "/api/v1/status").status == 403  # the role of its token, no more
    out = browser.send("DELETE", "/api/v1/session")
    assert (out.status, out.json, browser.cookie) == (200, {"token_revoked": False}, "")
    assert browser.who() == (401, "")
    assert browser.send("POST", "/api/v1/session", {"token": box.tokens["reader"]}).status == 200


def test_a_code_begins_a_session_whose_token_is_revoked_with_it(box: Box, browser: Browser) -> None:
    code = edge_rag("pair", "--name", "phone", data=box.data).strip()
    reply = browser.send("POST", "/api/v1/session", {"code": code})
    assert (reply.status, reply.json["name"]) == (200, "phone")
    assert browser.who() == (200, "phone")
    used = Browser(box).send("POST", "/api/v1/session", {"code": code})
    assert (used.status, used.json["error"]["code"]) == (401, "unauthenticated")
    kept = browser.cookie
    assert browser.send("DELETE", "/api/v1/session").json == {"token_revoked": True}
    browser.cookie = kept
    assert browser.who() == (401, "")
    assert "phone" not in edge_rag("token", "list", data=box.data)


def test_a_revoked_token_ends_the_session_of_the_browser(box: Box, browser: Browser) -> None:
    text = token("guest", box.data)
    assert browser.send("POST", "/api/v1/session", {"token": text}).status == 200
    edge_rag("token", "revoke", "guest", data=box.data)
    reply = browser.send("GET", "/api/v1/whoami")
    assert (reply.status, browser.cookie) == (401, "")
    assert "Max-Age=0" in reply.headers["set-cookie"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "token"),
        ({"token": "a", "code": "b"}, 400, "token"),
        ({"code": "AAAAAA-AAAAAA"}, 400, "code"),
        ({"token": "erag_0123456789abcdef_" + "A" * 43}, 401, None),
        ({"token": 1}, 400, "token"),
        ({"password": "a"}, 400, "password"),
    ],
)
def test_what_is_no_credential_begins_no_session(
    browser: Browser, body: Mapping[str, Any], status: int, param: str | None
) -> None:
    reply = browser.send("POST", "/api/v1/session", body)
    assert (reply.status, reply.json["error"]["param"], reply.headers["set-cookie"]) == (status, param, None)


def test_a_page_of_another_site_cannot_use_the_session(box: Box, browser: Browser) -> None:
    assert browser.send("POST", "/api/v1/session", {"token": box.tokens["writer-a"]}).status == 200
    path = "/api/v1/collections/a/documents/nothing"
    assert browser.send("DELETE", path).status == 404
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert browser.send("DELETE", path, headers=headers).status == 403
    refused = browser.send("DELETE", path, has_origin=False)
    assert (refused.status, refused.json["error"]["code"]) == (403, "permission_denied")
    # A bearer token, which no browser adds by itself, needs no origin, and goes before the cookie.
    bearer = {"authorization": f"Bearer {box.tokens['reader']}"}
    found = browser.send("DELETE", path, headers=bearer, has_origin=False)
    assert (found.status, "reader does not have it" in found.json["error"]["message"]) == (403, True)
    assert browser.send("GET", "/api/v1/whoami", headers=bearer).json["name"] == "reader"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box that trusts a proxy on its own host."""
    folder = tmp_path_factory.mktemp("proxied")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {"anna": token("anna", data, "--roles", "reader"), "admin": token("admin", data, "--roles", "admin")}
    config = """
    [tls]
    always = true
    [http]
    enabled = true
    address = "127.0.0.1:0"
    trusted_proxies = ["127.0.0.0/31"]
    proxy_user_header = "Remote-User"
    """
    with start_daemon(data, folder / "log", config) as running:
        yield Box(running, data, tokens)


def test_a_trusted_proxy_says_who_the_user_is(proxied: Box) -> None:
    browser = Browser(proxied)
    who = browser.send("GET", "/api/v1/whoami", headers={"remote-user": "anna"})
    assert (who.status, who.json["name"], who.json["roles"]) == (200, "anna", ["reader"])
    assert browser.send("GET", "/api/v1/status", headers={"remote-user": "anna"}).status == 403
    unknown = browser.send("GET", "/api/v1/whoami", headers={"remote-user": "berta"})
    assert unknown.status == 403
    assert "the proxy has signed in 'berta', which is no client of this box" in unknown.json["error"]["message"]
    bearer = {"authorization": f"Bearer {proxied.tokens['admin']}"}
    assert browser.send("GET", "/api/v1/whoami", headers={"remote-user": "anna", **bearer}).json["name"] == "admin"
    assert browser.send("GET", "/", headers={"remote-user": "berta"}).status == 200
    evil = {"remote-user": "anna", "sec-fetch-site": "cross-site"}
    assert browser.send("POST", "/api/v1/search", {"question": "x"}, evil, has_origin=False).status == 403
    edge_rag("token", "revoke", "anna", data=proxied.data)
    assert browser.send("GET", "/api/v1/whoami", headers={"remote-user": "anna"}).status == 403


def test_attempts_to_sign_in_are_limited(proxied: Box) -> None:
    browser = Browser(proxied)
    wrong = {"token": "erag_0123456789abcdef_" + "A" * 43}
    seen = [browser.send("POST", "/api/v1/session", wrong)]
    while seen[-1].status == 401 and len(seen) < MOST_ATTEMPTS:
        seen.append(browser.send("POST", "/api/v1/session", wrong))
    assert len(seen) > 60  # and one more for each second that they take
    assert (seen[-1].status, seen[-1].json["error"]["code"]) == (429, "quota_exceeded")
    assert int(seen[-1].headers["retry-after-ms"]) > 0
    admin = proxied.tokens["admin"]
    assert browser.send("GET", "/api/v1/whoami", headers={"authorization": f"Bearer {admin}"}).status == 200
    assert not any(text in proxied.running.log.read_text() for text in (admin, wrong["token"]))


def test_the_console_can_be_left_out(start: Callable[..., RunningDaemon]) -> None:
    running = start(config='[http]\naddress = "127.0.0.1:0"\nconsole = false\n')
    with closing(http.client.HTTPConnection(running.http.removeprefix("http://"), timeout=60)) as connection:
        for path in ("/", "/console/a/core/app.js"):
            connection.request("GET", path)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["error"]["code"]) == (404, "not_found")


def test_on_loopback_the_console_opens_without_credentials(start: Callable[..., RunningDaemon]) -> None:
    running = start(config='[http]\naddress = "127.0.0.1:0"\n')
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == f"open {running.http}/ in a browser\n"
    status = CliRunner().invoke(main, ["status", "--server", running.address])
    assert f"console      open {running.http}/ in a browser\n" in status.stdout
    with closing(http.client.HTTPConnection(running.http.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", "/")
        page = connection.getresponse()
        assert (page.status, b"<html" in page.read()) == (200, True)
        connection.request("GET", "/api/v1/whoami")
        who = connection.getresponse()
        assert (who.status, "admin" in json.loads(who.read())["roles"]) == (200, True)
        connection.request("GET", "/", headers={"host": "evil.example"})
        refused = connection.getresponse()
        assert (refused.status, b"http.hosts" in refused.read()) == (403, True)
