"""Who is at the door: credentials of a call to an identity.

Codes to credentials: what a box does for a machine that it does not know yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import grpc

from edge_rag.access.certificate_files import Introduction
from edge_rag.access.pairing_file import PairingFile
from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.tokens import TokenFile, new_token
from edge_rag.core.identity import Identity, Quota, local_identity
from edge_rag.errors import PermissionDenied, Unauthenticated

ANONYMOUS: Final = Identity("a stranger", frozenset(), frozenset(), quota=Quota(60, None, 4))
"""Whoever shows a code, all of them together: may do nothing, and that not too often. No token has a name like it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A newcomer's credentials.

    Attributes:
        identity: Who it is from now on.
        token: What it shows; not in the value's representation.
        introduction: How it recognizes the daemon.
        box: Name of the box, for people.
    """

    identity: Identity
    token: str = field(repr=False)
    introduction: Introduction
    box: str


class PairingService:
    """Exchanges one-time codes for tokens. May be used from any thread.

    Args:
        pairings: The codes there are.
        tokens: The tokens there are.
        introduction: Says how clients recognize the daemon; raises AccessError where that cannot be told.
        box: Name of the box, for people.
    """

    def __init__(
        self, pairings: PairingFile, tokens: TokenFile, introduction: Callable[[], Introduction], box: str
    ) -> None:
        self._pairings = pairings
        self._tokens = tokens
        self._introduction = introduction
        self._box = box

    def admit(self, key: str, secret: str) -> Admitted:
        """Makes a token for a code, which is used up before there is a token: what breaks in between costs the code.

        Args:
            key: The code's key.
            secret: Its secret.

        Raises:
            Unauthenticated: There is no open code of this key and secret; does not say what is wrong with it.
            AccessError: A file cannot be used, or the name got another token since the code was made.
        """
        introduction = self._introduction()
        redeemed = self._pairings.redeem(key, secret)
        if redeemed is None:
            raise Unauthenticated(
                "the code is not good here: it is wrong, used, or over; make another with `edge-rag pair` on the box"
            )
        now = datetime.now(UTC)
        expires = None if redeemed.token_days is None else now + timedelta(days=redeemed.token_days)
        token, text = new_token(redeemed.identity, now, expires)
        self._tokens.add(token)
        return Admitted(redeemed.identity, text, introduction, self._box)


_AUTHORIZATION: Final = "authorization"
_SCHEME: Final = "bearer "


class Authenticator:
    """Finds out who calls.

    A connection without TLS can only come from this box, since the daemon listens without TLS on loopback addresses and
    Unix sockets only: it may do everything. Over TLS a token decides, else the common name of the client's certificate.

    Args:
        tokens: The tokens there are.
        quotas: What callers have used.
        newcomers: Gives those who show a code their credentials.
    """

    def __init__(self, tokens: TokenFile, quotas: QuotaLedger, newcomers: PairingService) -> None:
        self._tokens = tokens
        self.quotas = quotas
        self.newcomers = newcomers

    def use(self, tokens: TokenFile, newcomers: PairingService) -> None:
        """Goes by other tokens and codes from the next call on."""
        self._tokens = tokens
        self.newcomers = newcomers

    def stranger(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        """Returns the identity of somebody who shows nothing yet.

        Raises:
            PermissionDenied: The connection is without TLS, so that whatever is said over it may be heard.
        """
        if not _is_private(context):
            raise PermissionDenied("this needs TLS")
        return ANONYMOUS

    def identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        """Returns who calls.

        Raises:
            Unauthenticated: They show no credentials, or none that are known.
            AccessError: The file of tokens cannot be used.
        """
        peer = context.auth_context()
        if not _is_private(context):
            return local_identity(_address(context.peer()))
        shown = _bearer(context)
        if shown is not None:
            identity = self._tokens.identify(shown)
            if identity is None:
                raise Unauthenticated("the token is not known here; it may have been revoked or have expired")
            return identity
        for name in peer.get("x509_common_name", ()):
            identity = self._tokens.named(name.decode("utf-8", "replace"))
            if identity is not None:
                return identity
            raise Unauthenticated("the client's certificate names nobody who is let in; see edge-rag token create")
        raise Unauthenticated("credentials are needed: metadata `authorization: Bearer TOKEN`")


def _is_private(context: grpc.aio.ServicerContext[Any, Any]) -> bool:
    return b"ssl" in tuple(context.auth_context().get("transport_security_type", ()))


def _bearer(context: grpc.aio.ServicerContext[Any, Any]) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == _AUTHORIZATION:
            text = value if isinstance(value, str) else value.decode("latin-1")
            return text[len(_SCHEME) :].strip() if text.lower().startswith(_SCHEME) else text
    return None


def _address(peer: str) -> str:
    return peer.rsplit(":", 1)[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
