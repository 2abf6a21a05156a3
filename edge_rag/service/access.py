"""Pairing, which gives new clients their credentials, and the sessions of browsers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from edge_rag.access.pairing_file import PairedClient
from edge_rag.core.identity import Identity
from edge_rag.core.pairing_code import PairingCode, is_key, is_secret
from edge_rag.errors import InvalidRequest, Unauthenticated
from edge_rag.service.authentication import wrong_code
from edge_rag.service.call import Call, Operation

WHO_AM_I: Final = Operation("WhoAmI", None)
PAIR: Final = Operation("Pair", None, anonymous=True)
SIGN_IN: Final = Operation("SignIn", None, anonymous=True)
SIGN_OUT: Final = Operation("SignOut", None)

log = structlog.get_logger()


async def pair(call: Call, key: str, secret: str) -> PairedClient:
    """Exchanges a one-time code for a token."""
    if not is_key(key):
        raise InvalidRequest("key", "must be the 4 symbols of a code's key")
    if not is_secret(secret):
        raise InvalidRequest("secret", "must be the 12 symbols of a code's secret")
    pairing = call.context.authentication.pairing
    try:
        # Most wrong codes end here, without a thread and without the disk, which a right one must not wait for.
        if not pairing.is_open(key):
            raise wrong_code()
        # The count of tries, or the token, is synced before the reply.
        paired = await asyncio.to_thread(pairing.pair, key, secret)
    except Unauthenticated:
        log.warning("wrong pairing code", peer=call.peer)
        raise
    log.info("paired", name=paired.identity.name, peer=call.peer)
    return paired


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The session of a browser.

    Attributes:
        token: The token; not in the value's representation.
        expires: When the token expires, UTC; None for never.
        is_paired: Whether the token was made for this session, by a pairing code.
    """

    identity: Identity
    token: str = field(repr=False)
    expires: datetime | None
    is_paired: bool


async def sign_in(call: Call, token: str | None, code: str | None) -> SignedIn:
    """Returns the session that a token begins, or that a one-time code does, which is exchanged for a token."""
    if (token is None) == (code is None):
        raise InvalidRequest("token", "is needed, or a code, and not both")
    if code is not None:
        try:
            parsed = PairingCode.parse(code)
        except ValueError as error:
            raise InvalidRequest("code", str(error)) from error
        token = (await pair(call, parsed.key, parsed.secret)).token
    assert token is not None, "one of the two is there"
    try:
        known = call.context.authentication.pairing.token(token)
    except Unauthenticated:
        log.warning("wrong token", peer=call.peer)
        raise
    log.info("signed in", name=known.identity.name, peer=call.peer)
    return SignedIn(known.identity, token, known.expires, code is not None)


async def sign_out(call: Call, token: str | None, is_paired: bool) -> bool:
    """Ends the session of a browser; returns whether its token was revoked, because no other program has it."""
    log.info("signed out", name=call.identity.name, peer=call.peer)
    if token is None or not is_paired:
        return False
    return await asyncio.to_thread(call.context.authentication.pairing.revoke, token)
