"""The file of tokens: changed by the command line, read again by the daemon as soon as it changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from edge_rag.access.exclusive import exclusively
from edge_rag.access.token_record import TokenRecord, digest_of
from edge_rag.access.tokens import Token, is_shown_by, key_of
from edge_rag.core.atomic_file import replace_file
from edge_rag.core.file_format import is_newer
from edge_rag.core.identity import Identity
from edge_rag.errors import AccessError, TokenNotFound

_FORMAT: Final = 2


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1, 2]
    sha256: str | None = None
    tokens: tuple[TokenRecord, ...]

    @model_validator(mode="after")
    def _is_as_written(self) -> _File:
        if self.sha256 != (digest_of(self.tokens) if self.format == _FORMAT else None):
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
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
        if is_newer(content, _FORMAT):
            raise AccessError(f"{self._path}: was written by a newer edge-rag; install that version again")
        try:
            records = _File.model_validate_json(content).tokens
            return {record.key: record.token() for record in records}
        except (ValidationError, KeyError) as error:
            raise AccessError(f"{self._path}: damaged; nobody is let in until it is mended or removed") from error

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Token]]:
        with exclusively(self._path):
            tokens = self._read()
            yield tokens
            replace_file(self._path, _written(tuple(TokenRecord.of(token) for token in tokens.values())), mode=0o600)


def _written(records: tuple[TokenRecord, ...]) -> bytes:
    return _File(format=_FORMAT, sha256=digest_of(records), tokens=records).model_dump_json(indent=1).encode()
