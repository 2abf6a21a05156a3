"""Who may do what: tokens and pairing codes, for administrators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, Changes, Legal
from edge_rag.server.http.api.endpoints import fitting
from edge_rag.service.admin import tokens
from edge_rag.service.admin.tokens import (
    MAX_CODE_MINUTES,
    MAX_TOKEN_DAYS,
    NewPairingCode,
    TokenInfo,
    TokenSettings,
)
from edge_rag.service.call import Call

_MOST_TOKENS: Final = 1000


def _token_key(name: str, value: str) -> str:
    if not (len(value) == 16 and value.isascii() and value.isalnum()):
        raise InvalidRequest(name, "must be the key of a token, 16 hexadecimal digits")
    return value


TokenKey = Annotated[str, Legal(_token_key, (("pattern", "^[0-9a-f]{16}$"),))]
"""Key of a token."""

TokenName = Annotated[str, Legal(lambda name, value: value, (("pattern", "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),))]
"""Name of a token, which the operation checks."""


@dataclass(frozen=True, slots=True)
class CreateTokenRequest:
    """A new token.

    Attributes:
        name: Name of the client; fair shares and usage are counted by it.
        settings: Its rights.
    """

    name: TokenName
    settings: TokenSettings = field(default_factory=TokenSettings)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token.

    Attributes:
        token: The token.
        secret: What its client sends as `Authorization: Bearer`; shown only here.
    """

    token: TokenInfo
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UpdateTokenRequest:
    """Changes of a token.

    Attributes:
        token: Its key.
        settings: The settings that change; each is replaced as a whole.
        force: Whether the role admin may be taken from the caller's own token.
    """

    token: TokenKey
    settings: Annotated[Mapping[str, Any], Changes(TokenSettings)]
    force: bool = False


@dataclass(frozen=True, slots=True)
class RevokeTokenRequest:
    """A token that is revoked.

    Attributes:
        token: Its key.
        force: Whether the caller's own token may be revoked.
    """

    token: TokenKey
    force: bool = False


@dataclass(frozen=True, slots=True)
class OneToken:
    """A token.

    Attributes:
        token: The token.
    """

    token: TokenInfo


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A token that was revoked.

    Attributes:
        revoked: The token.
    """

    revoked: TokenInfo


@dataclass(frozen=True, slots=True)
class CreatePairingCodeRequest:
    """A new one-time code.

    Attributes:
        name: Name of the client.
        settings: What its token will allow, without `expires`.
        days: Validity of its token, days; unlimited by default.
        minutes: Validity of the code.
        console: URL that opens the console for the client, `https://HOST:PORT/`; none by default.
    """

    name: TokenName
    settings: TokenSettings = field(default_factory=TokenSettings)
    days: Annotated[int | None, Between(1, MAX_TOKEN_DAYS)] = None
    minutes: Annotated[int, Between(1, MAX_CODE_MINUTES)] = 10
    console: str = ""


async def create_pairing_code(call: Call, request: CreatePairingCodeRequest) -> NewPairingCode:
    """Makes a one-time code, which another machine exchanges for a token; with a console's URL also as a QR code."""
    return await tokens.pair(call, request.name, request.settings, request.days, request.minutes, request.console)


@dataclass(frozen=True, slots=True)
class ListTokensRequest:
    """A page of the tokens.

    Attributes:
        after: Key of the last token of the page before, as ``next`` of its response; none for the first page.
        limit: Most tokens of the page.
    """

    after: TokenKey | None = None
    limit: Annotated[int, Between(1, _MOST_TOKENS)] = 100


@dataclass(frozen=True, slots=True)
class TokenPage:
    """A page of the tokens.

    Attributes:
        tokens: By name, expired ones included.
        next: Key after which the next page begins; null at the end.
        advice: The steps that are missing before other machines can use tokens; empty if they can.
    """

    tokens: tuple[TokenInfo, ...]
    next: str | None
    advice: str


async def list_tokens(call: Call, request: ListTokensRequest) -> TokenPage:
    """Lists the tokens with their rights, without their secrets."""
    found = await tokens.list_all(call)
    keys = [token.key for token in found.tokens]
    start = 0 if request.after is None else keys.index(request.after) + 1 if request.after in keys else len(keys)
    shown = fitting(found.tokens[start : start + request.limit])
    more = start + len(shown) < len(keys)
    return TokenPage(shown, shown[-1].key if more else None, found.advice)


async def create_token(call: Call, request: CreateTokenRequest) -> NewToken:
    """Makes a token. Its secret is shown once; the box keeps only a hash of it."""
    made, secret = await tokens.create(call, request.name, request.settings)
    return NewToken(made, secret)


async def update_token(call: Call, request: UpdateTokenRequest) -> OneToken:
    """Changes the given settings of a token and keeps the others. The next call with it has the new rights."""
    if not request.settings:
        raise InvalidRequest("settings", "must hold at least one setting to change")
    return OneToken(await tokens.update(call, request.token, request.settings, request.force))


async def revoke_token(call: Call, request: RevokeTokenRequest) -> RevokedToken:
    """Revokes a token. The next call with it is refused."""
    return RevokedToken(await tokens.revoke(call, request.token, request.force))
