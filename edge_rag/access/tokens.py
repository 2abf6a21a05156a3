"""Tokens: random secrets that clients show, kept as hashes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from edge_rag.core.identity import Identity

_PREFIX: Final = "erag"
_FORM: Final = re.compile(rf"{_PREFIX}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_SECRET_BYTES: Final = 32
_NOBODY: Final = hashlib.sha256(secrets.token_bytes(_SECRET_BYTES)).digest()


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept.

    Attributes:
        key: What it is found by, 16 hexadecimal digits; not secret.
        digest: SHA-256 of the secret. The secret has 256 random bits, so that a slow hash would add nothing.
        identity: Who shows it.
        created: When it was made, UTC.
        expires: When it ends, UTC; None for never.
    """

    key: str
    digest: bytes
    identity: Identity
    created: datetime
    expires: datetime | None = None


def new_token(identity: Identity, created: datetime, expires: datetime | None = None) -> tuple[Token, str]:
    """Makes a token.

    Returns:
        The token, and the text that its owner shows; it cannot be had again.
    """
    key, secret = secrets.token_hex(8), secrets.token_urlsafe(_SECRET_BYTES)
    return Token(key, _digest(secret), identity, created, expires), f"{_PREFIX}_{key}_{secret}"


def key_of(text: str) -> str | None:
    """Returns the key of a text that has a token's form, else None."""
    found = _FORM.fullmatch(text)
    return found[1] if found else None


def is_shown_by(token: Token | None, text: str, now: datetime) -> bool:
    """Whether a text is that of a token that has not expired.

    Takes the same time whatever part of the secret is right, and for a token that does not exist.
    """
    found = _FORM.fullmatch(text)
    shown = _digest(found[2] if found else text)
    same = hmac.compare_digest(shown, _NOBODY if token is None else token.digest)
    if token is None or found is None or found[1] != token.key:
        return False
    return same and (token.expires is None or now < token.expires)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
