"""Who calls: credentials, the identities that they stand for, and pairing, which gives new clients theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from edge_rag.access.certificates import ServerIdentity
from edge_rag.access.pairing_file import PairedClient, PairingFile, pairing
from edge_rag.access.tokens import Token, TokenFile, new_token
from edge_rag.core.address import is_local_peer, network_of_peer
from edge_rag.core.identity import Identity, Quota, local_identity
from edge_rag.core.pairing_code import PairingCode
from edge_rag.errors import PermissionDenied, TokenExists, TokenNotFound, Unauthenticated

PAIRING_QUOTA: Final = Quota(requests_per_minute=10, concurrent_requests=2)
"""Attempts to pair or sign in from one network: an IPv4 address, or the /64 of an IPv6 address. No quota is shared by
networks, so that strangers cannot use up that of others."""

LOCAL_PAIRING_QUOTA: Final = Quota(requests_per_minute=60, concurrent_requests=4)
"""Attempts to pair or sign in from one address of this host."""

_NAME_CHARACTERS: Final = 64
"""Characters of a name in an error; names have no more."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a connection and a call.

    Attributes:
        peer: The other end of the connection with its port, in gRPC's form: ``ipv4:192.0.2.7:5000``, ``unix:``.
        token: The bearer token, or that of a browser's session; None without one.
        user: Name of the client that a trusted proxy has signed in; None without one.
    """

    peer: str
    tls: bool
    token: str | None = None
    user: str | None = None
    certificate_names: Sequence[str] = ()

    @property
    def address(self) -> str:
        return self.peer.rsplit(":", 1)[0] if self.peer.startswith(("ipv4:", "ipv6:")) else self.peer


class PairingService:
    """Exchanges one-time codes for tokens, which begin and end sessions of browsers. May be used from any thread.

    Args:
        server_identity: Returns how clients recognize the daemon; raises AccessError where it has no certificate.
    """

    def __init__(
        self, pairings: PairingFile, tokens: TokenFile, server_identity: Callable[[], ServerIdentity], box: str
    ) -> None:
        self._pairings = pairings
        self._tokens = tokens
        self._introduction = server_identity
        self._box = box

    def server_identity(self) -> ServerIdentity:
        return self._introduction()

    def make(self, identity: Identity, token_days: int | None, minutes: int) -> tuple[PairingCode, datetime]:
        """Makes a code, which is valid once; one with the same name is void from then on.

        Args:
            token_days: Validity of that token, days; None for unlimited.

        Returns:
            The code, and its expiry, UTC.

        Raises:
            TokenExists: The name has a token already.
        """
        code, now = PairingCode.make(self._introduction().sha256), datetime.now(UTC)
        if any(token.identity.name == identity.name for token in self._tokens.tokens()):
            raise TokenExists(identity.name)
        expires = now + timedelta(minutes=minutes)
        self._pairings.add(pairing(code, identity, token_days, now, expires))
        return code, expires

    def is_open(self, key: str) -> bool:
        """Whether an open code has a key; cheap, because strangers may ask as often as they like."""
        return self._pairings.is_open(key)

    def pair(self, key: str, secret: str) -> PairedClient:
        """Creates a token for a code. The code is invalidated first: a failure after that costs the code."""
        server_identity = self._introduction()
        redeemed = self._pairings.redeem(key, secret)
        if redeemed is None:
            raise wrong_code()
        now = datetime.now(UTC)
        expires = None if redeemed.token_days is None else now + timedelta(days=redeemed.token_days)
        token, text = new_token(redeemed.identity, now, expires)
        self._tokens.add(token)
        return PairedClient(redeemed.identity, text, server_identity, self._box)

    def token(self, text: str) -> Token:
        """Returns the token of a token text."""
        found = self._tokens.find(text)
        if found is None:
            raise unknown_token()
        return found

    def revoke(self, text: str) -> bool:
        """Revokes the token of a token text; returns whether there was one."""
        found = self._tokens.find(text)
        if found is None:
            return False
        try:
            self._tokens.revoke(found.identity.name)
        except TokenNotFound:  # it was revoked meanwhile
            return False
        return True


def wrong_code() -> Unauthenticated:
    """Returns the error of a code that is not open here; it does not say why."""
    return Unauthenticated(
        "the code is not valid here: it is wrong, used or expired; make another with `edge-rag pair` on the box"
    )


def unknown_token() -> Unauthenticated:
    return Unauthenticated("the token is not known here; it may have been revoked or have expired")


class Authenticator:
    """Authenticates callers.

    A connection without TLS comes from this box, since the daemon listens without TLS on loopback addresses and Unix
    sockets only; it has every role. Over TLS the token decides, else the user that a trusted proxy names, else the
    common name of the client's certificate.
    """

    def __init__(self, tokens: TokenFile, pairing: PairingService) -> None:
        self.tokens = tokens
        self.pairing = pairing

    def replace(self, tokens: TokenFile, pairing: PairingService) -> None:
        self.tokens = tokens
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
            PermissionDenied: A trusted proxy names a user that is no client of this box.
        """
        if not credentials.tls:
            return local_identity(credentials.address)
        if credentials.token is not None:
            identity = self.tokens.identify(credentials.token)
            if identity is None:
                raise unknown_token()
            return identity
        if credentials.user is not None:
            identity = self.tokens.named(credentials.user)
            if identity is None:
                raise PermissionDenied(
                    f"the proxy has signed in {credentials.user[:_NAME_CHARACTERS]!r}, which is no client of this box, "
                    "or one whose token has expired; `edge-rag token create --name` makes a client of that name known"
                )
            return identity
        for name in credentials.certificate_names:
            identity = self.tokens.named(name)
            if identity is not None:
                return identity
            raise Unauthenticated("the client's certificate names no known client; see edge-rag token create")
        raise Unauthenticated("credentials are needed: metadata `authorization: Bearer TOKEN`")
