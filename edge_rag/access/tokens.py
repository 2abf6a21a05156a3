"""Bearer tokens and their file.

Tokens are random secrets; the file contains their hashes. The command line changes the file, and the daemon reads it
again when it has changed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from edge_rag.core.atomic_file import lock_file, replace_file
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.ids import is_newer
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, InvalidRequest, TokenExists, TokenNotFound

_PREFIX: Final = "erag"
_FORM: Final = re.compile(rf"{_PREFIX}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_SECRET_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLLECTION: Final = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_BOUND: Final = 999_999_999
_DUMMY_DIGEST: Final = hashlib.sha256(secrets.token_bytes(_SECRET_BYTES)).digest()


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret.

    Attributes:
        key: Its id, 16 hexadecimal digits; not secret.
        digest: SHA-256 of the secret. The secret has 256 random bits, so a slow hash would add nothing.
        expires: Time of expiry, UTC; None for never.
    """

    key: str
    digest: bytes
    identity: Identity
    created: datetime
    expires: datetime | None = None


def checked_identity(identity: Identity) -> Identity:
    """Returns an identity that a token may have."""
    if not _NAME.fullmatch(identity.name):
        raise InvalidRequest("name", "must be 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit")
    if not identity.roles:
        raise InvalidRequest("roles", "must be at least one of reader, writer, peer and admin")
    allowed = identity.collections
    if allowed is not None and (not allowed or any(not _COLLECTION.fullmatch(each) for each in allowed)):
        raise InvalidRequest("collections", "must be names of a-z, 0-9, - and _, at least one, or none for all")
    quota = identity.quota
    for bound in (quota.requests_per_minute, quota.tokens_per_minute, quota.concurrent_requests):
        if bound is not None and not 1 <= bound <= _MAX_BOUND:
            raise InvalidRequest("quota", f"must be 1 to {_MAX_BOUND:,}, or none for no limit")
    return identity


def new_token(identity: Identity, created: datetime, expires: datetime | None = None) -> tuple[Token, str]:
    """Makes a token.

    Returns:
        The token, and the text to present, which cannot be recovered later.
    """
    key, secret = secrets.token_hex(8), secrets.token_urlsafe(_SECRET_BYTES)
    return Token(key, _digest(secret), identity, created, expires), f"{_PREFIX}_{key}_{secret}"


def key_of(text: str) -> str | None:
    """Returns the key in a token text, or None if it is malformed."""
    found = _FORM.fullmatch(text)
    return found[1] if found else None


def verify(token: Token | None, text: str, now: datetime) -> bool:
    """Whether a text matches a token that has not expired.

    Constant time, also for a token that does not exist.
    """
    found = _FORM.fullmatch(text)
    presented = _digest(found[2] if found else text)
    same = hmac.compare_digest(presented, _DUMMY_DIGEST if token is None else token.digest)
    if token is None or found is None or found[1] != token.key:
        return False
    return same and (token.expires is None or now < token.expires)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Positive = Annotated[int, Field(ge=1)] | None


class IdentityRecord(BaseModel):
    """File format of an identity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    roles: tuple[Role, ...]
    collections: tuple[str, ...] | None
    priority_max: str
    requests_per_minute: _Positive
    tokens_per_minute: _Positive
    concurrent_requests: _Positive

    def identity(self) -> Identity:
        """Returns the identity."""
        return Identity(
            name=self.name,
            roles=frozenset(self.roles),
            collections=None if self.collections is None else frozenset(self.collections),
            priority_ceiling=Priority[self.priority_max.upper()],
            quota=Quota(self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests),
        )


class _Keyed(BaseModel):
    key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    sha256: Sha256


class TokenRecord(IdentityRecord, _Keyed):
    """File format of a token. The key is the first field: the file's digest depends on the order of fields."""

    created: datetime
    expires: datetime | None

    @classmethod
    def of(cls, token: Token) -> TokenRecord:
        """Returns the record of a token."""
        return cls(
            key=token.key,
            sha256=token.digest.hex(),
            created=token.created,
            expires=token.expires,
            **identity_fields(token.identity),
        )

    def token(self) -> Token:
        """Returns the token."""
        return Token(self.key, bytes.fromhex(self.sha256), self.identity(), self.created, self.expires)


def identity_fields(identity: Identity) -> dict[str, Any]:
    """Returns the fields of an ``IdentityRecord``."""
    return {
        "name": identity.name,
        "roles": tuple(sorted(identity.roles, key=lambda role: role.value)),
        "collections": None if identity.collections is None else tuple(sorted(identity.collections)),
        "priority_max": identity.priority_ceiling.name.lower(),
        "requests_per_minute": identity.quota.requests_per_minute,
        "tokens_per_minute": identity.quota.tokens_per_minute,
        "concurrent_requests": identity.quota.concurrent_requests,
    }


def digest_of(records: Iterable[BaseModel]) -> str:
    """Returns the SHA-256 over a file's records, hexadecimal."""
    return hashlib.sha256("\n".join(record.model_dump_json() for record in records).encode()).hexdigest()


_FORMAT: Final = 2


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1, 2]
    sha256: str | None = None
    tokens: tuple[TokenRecord, ...]

    @model_validator(mode="after")
    def _check_digest(self) -> _File:
        if self.sha256 != (digest_of(self.tokens) if self.format == _FORMAT else None):
            raise ValueError("the digest does not match")
        return self


class TokenFile:
    """The tokens of one daemon. Any thread, and several processes.

    Args:
        path: The file; without it there are no tokens.
        now: The time, UTC.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._file_state: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def tokens(self) -> tuple[Token, ...]:
        """Returns all tokens by name, expired ones included."""
        return tuple(sorted(self._current().values(), key=lambda token: token.identity.name))

    def identify(self, text: str) -> Identity | None:
        """Returns the identity of a token text, or None; constant time."""
        token = self.find(text)
        return None if token is None else token.identity

    def find(self, text: str) -> Token | None:
        """Returns the token of a token text, or None if none is valid; constant time."""
        tokens = self._current()
        key = key_of(text)
        token = None if key is None else tokens.get(key)
        return token if verify(token, text, self._now()) else None

    def named(self, name: str) -> Identity | None:
        """Returns the identity with a name, or None; client certificates contain the name."""
        now = self._now()
        for token in self._current().values():
            if token.identity.name == name and (token.expires is None or now < token.expires):
                return token.identity
        return None

    def add(self, token: Token) -> None:
        """Adds a token, durable on return."""
        with self._update() as tokens:
            if any(other.identity.name == token.identity.name for other in tokens.values()):
                raise TokenExists(token.identity.name)
            tokens[token.key] = token

    def revoke(self, name: str) -> Token:
        """Removes the token of a name; the next call with it is refused."""
        with self._update() as tokens:
            for key, token in tokens.items():
                if token.identity.name == name:
                    return tokens.pop(key)
            raise TokenNotFound(name, _names(tokens))

    def get(self, key: str) -> Token:
        """Returns a token, which may have expired."""
        return _required(self._current(), key)

    def change(self, changed: Token) -> None:
        """Replaces the token of the same key, durable on return; the next call with it has the new rights."""
        with self._update() as tokens:
            tokens[_required(tokens, changed.key).key] = changed

    def remove(self, key: str) -> Token:
        """Removes the token of a key; the next call with it is refused."""
        with self._update() as tokens:
            return tokens.pop(_required(tokens, key).key)

    def _current(self) -> dict[str, Token]:
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                self._file_state, self._tokens = None, {}
                return self._tokens
            except OSError as error:
                raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._file_state:
                self._tokens, self._file_state = self._read(), seen
            return self._tokens

    def _read(self) -> dict[str, Token]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
        if is_newer(content, _FORMAT):
            raise AccessError(f"{self._path}: written by a newer edge-rag; install that version again")
        try:
            records = _File.model_validate_json(content).tokens
            return {record.key: record.token() for record in records}
        except (ValidationError, KeyError) as error:
            raise AccessError(f"{self._path}: damaged; calls are refused until it is repaired or removed") from error

    @contextmanager
    def _update(self) -> Iterator[dict[str, Token]]:
        with lock_file(self._path):
            tokens = self._read()
            yield tokens
            replace_file(self._path, _serialized(tuple(TokenRecord.of(token) for token in tokens.values())), mode=0o600)


def _required(tokens: dict[str, Token], key: str) -> Token:
    if key not in tokens:
        raise TokenNotFound(key, _names(tokens))
    return tokens[key]


def _names(tokens: dict[str, Token]) -> tuple[str, ...]:
    return tuple(sorted(token.identity.name for token in tokens.values()))


def _serialized(records: tuple[TokenRecord, ...]) -> bytes:
    return _File(format=_FORMAT, sha256=digest_of(records), tokens=records).model_dump_json(indent=1).encode()
