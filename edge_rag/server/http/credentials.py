"""Whom a request is from, beside its bearer token: the session of a browser, or the user that a proxy has signed in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from starlette.datastructures import Headers

COOKIE: Final = "__Host-edge-rag"
"""Name of the cookie. Browsers accept the prefix only over TLS, for this host alone and for all its paths (RFC 6265bis,
section 4.1.3.2)."""

SESSION_S: Final = 400 * 24 * 3600
"""How long a browser keeps the cookie, seconds: the longest time that browsers allow. Its token ends it sooner."""

_ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"
_PAIRED: Final = "paired."
"""Prefix of a token that was made for this browser alone, so that signing out revokes it."""

_VALUE: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_OTHER_SITES: Final = ("cross-site", "same-site")
"""``Sec-Fetch-Site`` of requests that no page of this origin has made."""


class BrowserSession:
    """The session of a browser: a cookie that holds its token. The box keeps nothing of it.

    Attributes:
        token: The token; None without a session.
        is_paired: Whether the token was made for this browser alone, by a pairing code.
    """

    def __init__(self, cookies: Sequence[str]) -> None:
        self.headers: dict[str, str] = {}
        value = _cookie(cookies)
        self.is_paired = value is not None and value.startswith(_PAIRED)
        self.token = None if value is None else value.removeprefix(_PAIRED)

    def begin(self, token: str, is_paired: bool, expires: datetime | None) -> None:
        """Begins a session, in place of the one there may be.

        Args:
            is_paired: Whether the token was made for this browser alone.
            expires: When the token expires, UTC; None for never.
        """
        left_s = SESSION_S if expires is None else int((expires - datetime.now(UTC)).total_seconds())
        self._set((_PAIRED if is_paired else "") + token, max(0, min(left_s, SESSION_S)))

    def end(self) -> None:
        self._set("", 0)

    def _set(self, value: str, seconds: int) -> None:
        self.headers["set-cookie"] = f"{COOKIE}={value}; Max-Age={seconds}; {_ATTRIBUTES}"


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Proxies whose word on who a user is counts, because they have signed the user in.

    Attributes:
        networks: Their addresses.
        header: Name of the header with the user's name, lower case.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    header: str = "x-forwarded-user"

    def user(self, host: str, headers: Headers) -> str | None:
        """Returns the name of a request's user; None if no trusted proxy names one.

        The client may have sent one of two duplicate headers; they give a name that nobody has.

        Args:
            host: Address of the other end of the connection; an IPv4 address may be mapped (``::ffff:192.0.2.7``).
        """
        names = headers.getlist(self.header) if self.networks else []
        if not any(names):
            return None
        address = ip_address(host.removeprefix("::ffff:").partition("%")[0])
        return ", ".join(names) if any(address in network for network in self.networks) else None


NO_PROXIES: Final = TrustedProxies()


def is_of_another_site(method: str, headers: Mapping[str, str], has_cookie: bool) -> bool:
    """Returns whether a page of another site may have made a request, to which the browser added who the user is.

    Args:
        headers: Headers of the request; ``Origin`` is the box's own where there is one.
    """
    changes = method not in _SAFE_METHODS
    if headers.get("sec-fetch-site") in _OTHER_SITES and (changes or headers.get("sec-fetch-mode") != "navigate"):
        return True
    return has_cookie and changes and "origin" not in headers


def _cookie(headers: Sequence[str]) -> str | None:
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                return value if _VALUE.fullmatch(value) else None
    return None
