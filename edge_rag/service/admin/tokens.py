"""Tokens of other machines: administrators make, change and revoke them as `edge-rag token` does on the box."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from edge_rag.access.tokens import Token, checked_identity, new_token
from edge_rag.core.address import sign_in_url
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.pairing_code import PairingCode
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, ConfirmationNeeded, InvalidRequest
from edge_rag.service.admin.audit import record_change
from edge_rag.service.call import Call, Operation

LIST_TOKENS: Final = Operation("ListTokens", Role.ADMIN)
CREATE_TOKEN: Final = Operation("CreateToken", Role.ADMIN)
UPDATE_TOKEN: Final = Operation("UpdateToken", Role.ADMIN)
REVOKE_TOKEN: Final = Operation("RevokeToken", Role.ADMIN)
CREATE_PAIRING_CODE: Final = Operation("CreatePairingCode", Role.ADMIN)

MAX_CODE_MINUTES: Final = 1440
"""Longest validity of a pairing code, minutes."""

MAX_TOKEN_DAYS: Final = 36_500
"""Longest validity of the token of a pairing code, days."""

_CONSOLE: Final = re.compile(r"https://[A-Za-z0-9.\-\[\]:]{1,255}/")

_BOUNDS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The rights of a token.

    Attributes:
        roles: What its bearer may do.
        collections: Collections that its bearer may access; None for all.
        priority_max: Most urgent scheduling class of its bearer's requests.
        requests_per_minute: Calls started within a minute; None is unlimited.
        tokens_per_minute: Prompt and generated tokens within a minute; None is unlimited.
        concurrent_requests: Calls in progress at once; None is unlimited.
        expires: When it expires, UTC; None for never.
    """

    roles: frozenset[Role] = field(default_factory=lambda: frozenset({Role.READER}))
    collections: frozenset[str] | None = None
    priority_max: Priority = Priority.INTERACTIVE
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    expires: datetime | None = None

    def identity(self, name: str) -> Identity:
        quota = Quota(self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests)
        return checked_identity(Identity(name, self.roles, self.collections, self.priority_max, quota))


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret.

    Attributes:
        key: Its id, 16 hexadecimal digits.
        identity: Whom it authenticates, with its rights.
        created: When it was made, UTC.
        expires: When it expires or expired, UTC; None for never.
        is_expired: Whether it has expired.
        is_own: Whether it is the caller's.
    """

    key: str
    identity: Identity
    created: datetime
    expires: datetime | None
    is_expired: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class TokenList:
    """The tokens of the box.

    Attributes:
        tokens: By name, expired ones included.
        advice: The steps that are missing before other machines can use tokens; empty if they can.
    """

    tokens: tuple[TokenInfo, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class NewPairingCode:
    """A one-time code, which is exchanged for a token.

    Attributes:
        code: The code, for `edge-rag connect --code` and for the console; shown only here.
        expires: When it is void, UTC.
        url: URL that opens the console and signs in; empty if other machines do not reach the console.
        qr: The QR code of the URL by rows, 1 for dark; empty without a URL.
    """

    code: str = field(repr=False)
    expires: datetime
    url: str = field(repr=False)
    qr: tuple[str, ...] = field(repr=False)


async def list_all(call: Call) -> TokenList:
    authentication = call.context.authentication
    found = await call.run(authentication.tokens.tokens)
    return TokenList(tuple(_info(call, token) for token in found), await call.run(_advice, call))


async def create(call: Call, name: str, settings: TokenSettings) -> tuple[TokenInfo, str]:
    """Makes a token; returns it and the text to present, which cannot be had again."""
    now = datetime.now(UTC)
    _check_expiry(settings.expires, now)
    token, text = new_token(settings.identity(name), now, settings.expires)
    add = partial(call.context.authentication.tokens.add, token)
    await _change(call, f"token {name} was made with {_rights(token)}", add)
    return _info(call, token), text


async def update(call: Call, key: str, changes: Mapping[str, Any], force: bool) -> TokenInfo:
    """Changes a token; its next call has the new rights.

    Args:
        changes: New values by field of ``TokenSettings``.
        force: Whether a caller may take the role admin from its own token.
    """
    tokens = call.context.authentication.tokens
    token = await call.run(tokens.get, key)
    following = replace(_settings(token), **changes)
    if "expires" in changes:
        _check_expiry(following.expires, datetime.now(UTC))
    changed = replace(token, identity=following.identity(token.identity.name), expires=following.expires)
    if _is_own(call, token) and not changed.identity.is_a(Role.ADMIN):
        _require(force, "this takes the role admin from the token that you use")
    what = f"token {token.identity.name} was changed to {_rights(changed)}"
    await _change(call, what, partial(tokens.change, changed))
    return _info(call, changed)


async def revoke(call: Call, key: str, force: bool) -> TokenInfo:
    """Revokes a token: its next call is refused.

    Args:
        force: Whether a caller may revoke its own token.
    """
    tokens = call.context.authentication.tokens
    token = await call.run(tokens.get, key)
    if _is_own(call, token):
        _require(force, "this revokes the token that you use")
    await _change(call, f"token {token.identity.name} was revoked", partial(tokens.remove, key))
    return _info(call, token)


async def pair(
    call: Call, name: str, settings: TokenSettings, days: int | None, minutes: int, console: str
) -> NewPairingCode:
    """Makes a one-time code; an open one of the same name is void from then on.

    Args:
        settings: What its token will allow; ``expires`` must be None.
        days: Validity of the token, days; None for unlimited.
        console: URL that opens the console for the client, ``https://HOST:PORT/``; empty for none.
    """
    import segno

    if settings.expires is not None:
        raise InvalidRequest("settings.expires", "begins with the pairing; give days")
    if console and not _CONSOLE.fullmatch(console):
        raise InvalidRequest("console", "must be https://HOST:PORT/")
    made: list[tuple[PairingCode, datetime]] = []
    identity, pairing = settings.identity(name), call.context.authentication.pairing
    await _change(
        call, f"a pairing code for {name} was made", lambda: made.append(pairing.make(identity, days, minutes))
    )
    ((code, expires),) = made
    url = sign_in_url(console, code.text()) if console else ""
    rows = segno.make(url, error="m", micro=False).matrix if url else ()
    return NewPairingCode(code.text(), expires, url, tuple("".join(map(str, row)) for row in rows))


async def _change(call: Call, what: str, change: Callable[[], object]) -> None:
    """Changes a file on a thread and records that, also if the caller disconnects meanwhile."""

    def changed() -> None:
        change()
        record_change(call, what)

    await asyncio.shield(asyncio.to_thread(changed))


def _advice(call: Call) -> str:
    try:
        call.context.authentication.pairing.server_identity()
    except AccessError as error:
        return (
            f"Programs on this box need no token. Other machines cannot use one yet: {error}; then name an address of "
            "this box in `listen` and `http.address`, and start the daemon again"
        )
    return ""


def _require(force: bool, what: str) -> None:
    if not force:
        raise ConfirmationNeeded(f"{what}; repeat it with `force` if you have another way in")


def _check_expiry(expires: datetime | None, now: datetime) -> None:
    if expires is not None and expires <= now:
        raise InvalidRequest("expires", "must be in the future, or none for never")


def _is_own(call: Call, token: Token) -> bool:
    return token.identity.name == call.identity.name


def _settings(token: Token) -> TokenSettings:
    identity = token.identity
    bounds = {name: getattr(identity.quota, name) for name in _BOUNDS}
    return TokenSettings(
        identity.roles, identity.collections, identity.priority_ceiling, expires=token.expires, **bounds
    )


def _info(call: Call, token: Token) -> TokenInfo:
    expired = token.expires is not None and token.expires <= datetime.now(UTC)
    return TokenInfo(token.key, token.identity, token.created, token.expires, expired, _is_own(call, token))


def _rights(token: Token) -> str:
    roles = ", ".join(sorted(role.value for role in token.identity.roles))
    return f"the roles {roles}"
