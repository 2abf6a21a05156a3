"""The file of tokens: changed by the command line, read again by the daemon as soon as it changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from edge_rag.access.token import Token, is_shown_by, key_of
from edge_rag.core.durable_file import replace_file
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, TokenNotFound

_FORMAT: Final = 2
_Positive = Annotated[int, Field(ge=1)] | None


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    name: str
    roles: tuple[Role, ...]
    collections: tuple[str, ...] | None
    priority_max: str
    requests_per_minute: _Positive
    tokens_per_minute: _Positive
    concurrent_requests: _Positive
    created: datetime
    expires: datetime | None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1, 2]
    sha256: str | None = None
    tokens: tuple[_Record, ...]

    @model_validator(mode="after")
    def _is_as_written(self) -> _File:
        if self.sha256 != (_digest(self.tokens) if self.format == _FORMAT else None):
            raise ValueError("it was altered")
        return self


class TokenFile:
    """The tokens of one daemon. May be used from any thread, and by several processes.

    Args:
        path: The file; there are no tokens while it does not exist.
        now: The time, UTC.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def tokens(self) -> tuple[Token, ...]:
        """Returns all tokens by name, those that have expired too.

        Raises:
            AccessError: The file cannot be read or is damaged.
        """
        return tuple(sorted(self._current().values(), key=lambda token: token.identity.name))

    def identify(self, text: str) -> Identity | None:
        """Returns whose token a text is, or None; in the same time whatever part of it is right.

        Raises:
            AccessError: The file cannot be read or is damaged.
        """
        tokens = self._current()
        key = key_of(text)
        token = None if key is None else tokens.get(key)
        return token.identity if is_shown_by(token, text, self._now()) and token is not None else None

    def named(self, name: str) -> Identity | None:
        """Returns the identity of a name, or None; a client certificate carries the name.

        Raises:
            AccessError: The file cannot be read or is damaged.
        """
        now = self._now()
        for token in self._current().values():
            if token.identity.name == name and (token.expires is None or now < token.expires):
                return token.identity
        return None

    def add(self, token: Token) -> None:
        """Adds a token, durable on return.

        Raises:
            AccessError: The name has one already, or the file cannot be changed.
        """
        with self._changing() as tokens:
            if any(other.identity.name == token.identity.name for other in tokens.values()):
                raise AccessError(f"there is a token for {token.identity.name} already; revoke it first")
            tokens[token.key] = token

    def revoke(self, name: str) -> Token:
        """Removes the token of a name: the next call that shows it is refused.

        Raises:
            TokenNotFound: The name has none.
            AccessError: The file cannot be changed.
        """
        with self._changing() as tokens:
            for key, token in tokens.items():
                if token.identity.name == name:
                    return tokens.pop(key)
            raise TokenNotFound(name, tuple(sorted(token.identity.name for token in tokens.values())))

    def _current(self) -> dict[str, Token]:
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                self._seen, self._tokens = None, {}
                return self._tokens
            except OSError as error:
                raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._tokens, self._seen = self._read(), seen
            return self._tokens

    def _read(self) -> dict[str, Token]:
        try:
            records = _File.model_validate_json(self._path.read_bytes()).tokens
            return {record.key: _token(record) for record in records}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValidationError, KeyError) as error:
            raise AccessError(f"{self._path}: damaged; nobody is let in until it is mended or removed") from error

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Token]]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be changed: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self._read()
            yield tokens
            content = _written(tuple(_record(token) for token in tokens.values()))
            replace_file(self._path, content, mode=0o600)
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be changed: {error.strerror}") from error
        finally:
            os.close(lock)


def _written(records: tuple[_Record, ...]) -> bytes:
    return _File(format=_FORMAT, sha256=_digest(records), tokens=records).model_dump_json(indent=1).encode()


def _digest(records: tuple[_Record, ...]) -> str:
    return hashlib.sha256("\n".join(record.model_dump_json() for record in records).encode()).hexdigest()


def _token(record: _Record) -> Token:
    identity = Identity(
        name=record.name,
        roles=frozenset(record.roles),
        collections=None if record.collections is None else frozenset(record.collections),
        priority_ceiling=Priority[record.priority_max.upper()],
        quota=Quota(record.requests_per_minute, record.tokens_per_minute, record.concurrent_requests),
    )
    return Token(record.key, bytes.fromhex(record.sha256), identity, record.created, record.expires)


def _record(token: Token) -> _Record:
    identity = token.identity
    return _Record(
        key=token.key,
        sha256=token.digest.hex(),
        name=identity.name,
        roles=tuple(sorted(identity.roles, key=lambda role: role.value)),
        collections=None if identity.collections is None else tuple(sorted(identity.collections)),
        priority_max=identity.priority_ceiling.name.lower(),
        requests_per_minute=identity.quota.requests_per_minute,
        tokens_per_minute=identity.quota.tokens_per_minute,
        concurrent_requests=identity.quota.concurrent_requests,
        created=token.created,
        expires=token.expires,
    )
