"""Codes to credentials: what a box does for a machine that it does not know yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from edge_rag.access.certificate_files import Introduction
from edge_rag.access.pairing_file import PairingFile
from edge_rag.access.token_file import TokenFile
from edge_rag.access.tokens import new_token
from edge_rag.core.identity import Identity, Quota
from edge_rag.errors import Unauthenticated

STRANGER: Final = Identity("a stranger", frozenset(), frozenset(), quota=Quota(60, None, 4))
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


class Newcomers:
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
