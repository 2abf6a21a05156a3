"""Identity: authentication of callers, and pairing, which gives new clients their credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from edge_rag.access.certificates import ServerIdentity
from edge_rag.access.pairing_file import PairedClient, PairingFile
from edge_rag.access.tokens import TokenFile, new_token
from edge_rag.core.address import is_local_peer, network_of_peer
from edge_rag.core.identity import Identity, Quota, local_identity
from edge_rag.core.pairing_code import is_key, is_secret
from edge_rag.errors import InvalidRequest, PermissionDenied, Unauthenticated
from edge_rag.service.call import Call, Credentials, Operation

WHO_AM_I: Final = Operation("WhoAmI", None)
PAIR: Final = Operation("Pair", None, anonymous=True)

PAIRING_QUOTA: Final = Quota(requests_per_minute=10, concurrent_requests=2)
"""Attempts to pair from one network: an IPv4 address, or the /64 of an IPv6 address. No quota is shared by networks, so
that strangers cannot use up that of others."""

LOCAL_PAIRING_QUOTA: Final = Quota(requests_per_minute=60, concurrent_requests=4)
"""Attempts to pair from one address of this host."""

log = structlog.get_logger()


class PairingService:
    """Exchanges one-time codes for tokens. May be used from any thread.

    Args:
        pairings: The open codes.
        tokens: The tokens.
        server_identity: Returns how clients recognize the daemon; raises AccessError where it has no certificate.
        box: Name of the box, for people.
    """

    def __init__(
        self, pairings: PairingFile, tokens: TokenFile, server_identity: Callable[[], ServerIdentity], box: str
    ) -> None:
        self._pairings = pairings
        self._tokens = tokens
        self._introduction = server_identity
        self._box = box

    def is_open(self, key: str) -> bool:
        """Whether an open code has a key; cheap, because strangers may ask as often as they like.

        Raises:
            AccessError: The file of codes is unusable.
        """
        return self._pairings.is_open(key)

    def pair(self, key: str, secret: str) -> PairedClient:
        """Creates a token for a code. The code is invalidated first: a failure after that costs the code.

        Args:
            key: The code's key.
            secret: The code's secret.

        Raises:
            Unauthenticated: No open code has this key and secret. The message does not say which one is wrong.
            AccessError: A file is unusable, or another token got the name after the code was made.
        """
        server_identity = self._introduction()
        redeemed = self._pairings.redeem(key, secret)
        if redeemed is None:
            raise wrong_code()
        now = datetime.now(UTC)
        expires = None if redeemed.token_days is None else now + timedelta(days=redeemed.token_days)
        token, text = new_token(redeemed.identity, now, expires)
        self._tokens.add(token)
        return PairedClient(redeemed.identity, text, server_identity, self._box)


def wrong_code() -> Unauthenticated:
    """Returns the error of a code that is not open here; it does not say why."""
    return Unauthenticated(
        "the code is not valid here: it is wrong, used or expired; make another with `edge-rag pair` on the box"
    )


class Authenticator:
    """Authenticates callers.

    A connection without TLS comes from this box, since the daemon listens without TLS on loopback addresses and Unix
    sockets only; it has every role. Over TLS the token decides, else the common name of the client's certificate.

    Args:
        tokens: The tokens.
        pairing: Gives new clients their credentials.
    """

    def __init__(self, tokens: TokenFile, pairing: PairingService) -> None:
        self._tokens = tokens
        self.pairing = pairing

    def replace(self, tokens: TokenFile, pairing: PairingService) -> None:
        """Uses other tokens and codes from the next call on."""
        self._tokens = tokens
        self.pairing = pairing

    def anonymous(self, credentials: Credentials) -> Identity:
        """Returns the identity of a client without credentials: it has no role, and is named after its network.

        Raises:
            PermissionDenied: The connection has no TLS, so that a token sent over it could be read by others.
        """
        if not credentials.tls:
            raise PermissionDenied("this needs TLS")
        # No token can have a name with spaces.
        name = f"anonymous client at {network_of_peer(credentials.peer)}"
        quota = LOCAL_PAIRING_QUOTA if is_local_peer(credentials.peer) else PAIRING_QUOTA
        return Identity(name, frozenset(), frozenset(), quota=quota)

    def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the caller's identity.

        Raises:
            Unauthenticated: The caller has no credentials, or unknown ones.
            AccessError: The file of tokens is unusable.
        """
        if not credentials.tls:
            return local_identity(credentials.address)
        if credentials.token is not None:
            identity = self._tokens.identify(credentials.token)
            if identity is None:
                raise Unauthenticated("the token is not known here; it may have been revoked or have expired")
            return identity
        for name in credentials.certificate_names:
            identity = self._tokens.named(name)
            if identity is not None:
                return identity
            raise Unauthenticated("the client's certificate names no known client; see edge-rag token create")
        raise Unauthenticated("credentials are needed: metadata `authorization: Bearer TOKEN`")


async def pair(call: Call, key: str, secret: str) -> PairedClient:
    """Exchanges a one-time code for a token.

    Raises:
        InvalidRequest: Key or secret cannot be those of a code.
        Unauthenticated: No open code has this key and secret.
        AccessError: A file is unusable.
    """
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
