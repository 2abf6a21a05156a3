"""Sessions of browsers and users that proxies name, without a server."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
from starlette.datastructures import Headers

from edge_rag.server.http.credentials import (
    COOKIE,
    SESSION_S,
    BrowserSession,
    TrustedProxies,
    is_of_another_site,
)

TOKEN = "erag_0123456789abcdef_" + "A" * 43
PROXIES = TrustedProxies((ip_network("192.0.2.7"), ip_network("2001:db8::/64")), "x-forwarded-user")


def sent(session: BrowserSession) -> tuple[str, set[str]]:
    value, *attributes = session.headers["set-cookie"].split("; ")
    return value, set(attributes)


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_browser_sends_back_what_began_its_session(is_paired: bool) -> None:
    session = BrowserSession([])
    session.begin(TOKEN, is_paired, None)
    value, attributes = sent(session)
    assert attributes == {f"Max-Age={SESSION_S}", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"}
    later = BrowserSession([f"theme=dark; {value}"])
    assert (later.token, later.is_paired, later.headers) == (TOKEN, is_paired, {})


def test_a_session_ends_with_its_token() -> None:
    session = BrowserSession([])
    session.begin(TOKEN, False, datetime.now(UTC) + timedelta(hours=1))
    (age,) = (part for part in sent(session)[1] if part.startswith("Max-Age="))
    assert 3590 <= int(age.removeprefix("Max-Age=")) <= 3600
    session.end()
    value, attributes = sent(session)
    assert value == f"{COOKIE}="
    assert "Max-Age=0" in attributes


@pytest.mark.parametrize(
    "cookies",
    [[], [""], ["a=b"], [f"{COOKIE}="], [f"{COOKIE}=a b"], [f"x{COOKIE}={TOKEN}"], [f"{COOKIE}={'A' * 300}"], [COOKIE]],
)
def test_anything_else_is_no_session(cookies: list[str]) -> None:
    assert BrowserSession(cookies).token is None


@pytest.mark.parametrize(
    ("host", "names", "user"),
    [
        ("192.0.2.7", ["anna"], "anna"),
        ("::ffff:192.0.2.7", ["anna"], "anna"),
        ("2001:db8::1", ["anna"], "anna"),
        ("192.0.2.8", ["anna"], None),
        ("2001:db8:0:1::1", ["anna"], None),
        ("fe80::1%eth0", ["anna"], None),
        ("192.0.2.7", [], None),
        ("192.0.2.7", [""], None),
        ("192.0.2.7", ["anna", "admin"], "anna, admin"),
    ],
)
def test_only_trusted_proxies_name_users(host: str, names: list[str], user: str | None) -> None:
    headers = Headers(raw=[(b"x-forwarded-user", name.encode()) for name in names])
    assert PROXIES.user(host, headers) == user


def test_without_trusted_proxies_the_header_says_nothing() -> None:
    assert TrustedProxies().user("127.0.0.1", Headers({"x-forwarded-user": "anna"})) is None


@pytest.mark.parametrize(
    ("method", "headers", "has_cookie", "refused"),
    [
        ("GET", {}, True, False),
        ("POST", {}, True, True),
        ("DELETE", {}, True, True),
        ("POST", {"origin": "https://box"}, True, False),
        ("POST", {"origin": "https://box", "sec-fetch-site": "same-origin"}, True, False),
        ("POST", {}, False, False),  # a program behind a proxy
        ("POST", {"sec-fetch-site": "cross-site"}, False, True),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, True, True),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True, False),
        ("GET", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, True, False),
        ("GET", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, True, False),
    ],
)
def test_pages_of_other_sites_cannot_use_the_session(
    method: str, headers: dict[str, str], has_cookie: bool, refused: bool
) -> None:
    assert is_of_another_site(method, headers, has_cookie) is refused
