"""Pairing codes and their file: created by the command line, redeemed by the daemon.

The file contains hashes of secrets. Wrong tries and redemptions are durable before the caller gets a reply, so a
restart gives no further tries and no second use.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_rag.access.certificates import ServerIdentity
from edge_rag.access.tokens import IdentityRecord, Sha256, digest_of, identity_fields
from edge_rag.core.atomic_file import lock_file, replace_file
from edge_rag.core.identity import Identity
from edge_rag.core.pairing_code import PairingCode
from edge_rag.errors import AccessError

MAX_TRIES: Final = 5
"""Number of wrong secrets that voids a code."""


@dataclass(frozen=True, slots=True)
class PairedClient:
    """A new client's credentials.

    Attributes:
        token: Its token; excluded from the representation.
    """

    identity: Identity
    token: str = field(repr=False)
    server_identity: ServerIdentity
    box: str


@dataclass(frozen=True, slots=True)
class Pairing:
    """A pairing code without its secret.

    Attributes:
        digest: SHA-256 of its secret.
        identity: The identity of the token it is exchanged for.
        token_days: Validity of that token, days; None for unlimited.
    """

    key: str
    digest: bytes
    identity: Identity
    token_days: int | None
    created: datetime
    expires: datetime
    wrong_tries: int = 0

    def is_open(self, now: datetime) -> bool:
        """Whether it can be redeemed: not after its expiry, nor if the clock was set back before its creation."""
        return self.created <= now < self.expires


def pairing(
    code: PairingCode, identity: Identity, token_days: int | None, created: datetime, expires: datetime
) -> Pairing:
    """Returns a code without its secret."""
    return Pairing(code.key, _digest(code.secret), identity, token_days, created, expires)


class _Record(IdentityRecord):
    key: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{4}$")]
    sha256: Sha256
    token_days: Annotated[int, Field(ge=1)] | None
    created: datetime
    expires: datetime
    wrong_tries: Annotated[int, Field(ge=0, lt=MAX_TRIES)]

    @classmethod
    def of(cls, known: Pairing) -> _Record:
        return cls(
            key=known.key,
            sha256=known.digest.hex(),
            token_days=known.token_days,
            created=known.created,
            expires=known.expires,
            wrong_tries=known.wrong_tries,
            **identity_fields(known.identity),
        )

    def pairing(self) -> Pairing:
        return Pairing(
            self.key,
            bytes.fromhex(self.sha256),
            self.identity(),
            self.token_days,
            self.created,
            self.expires,
            self.wrong_tries,
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    sha256: str
    pairings: tuple[_Record, ...]

    @model_validator(mode="after")
    def _check_digest(self) -> _File:
        if self.sha256 != digest_of(self.pairings):
            raise ValueError("the digest does not match")
        return self


class PairingFile:
    """The codes of one daemon. Any thread, and several processes.

    Args:
        path: The file; without it there are no codes.
        now: The time, UTC.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._file_state: tuple[int, int, int] | None = None
        self._pairings: dict[str, Pairing] = {}

    def open_pairings(self) -> tuple[Pairing, ...]:
        now = self._now()
        return tuple(known for known in self._current().values() if known.is_open(now))

    def is_open(self, key: str) -> bool:
        """Whether an open code has a key. Reads the file only if it has changed."""
        known = self._current().get(key)
        return known is not None and known.is_open(self._now())

    def add(self, new: Pairing) -> None:
        with self._update() as pairings:
            for key, known in list(pairings.items()):
                if known.identity.name == new.identity.name or not known.is_open(self._now()):
                    del pairings[key]
            pairings[new.key] = new

    def redeem(self, key: str, secret: str) -> Pairing | None:
        """Redeems a code, durable on return; of concurrent calls one succeeds.

        Returns:
            The code, or None if no open code has this key and secret; a wrong secret counts as a try of the code.
        """
        presented, now = _digest(secret), self._now()
        if not self.is_open(key):
            return None
        with self._update() as pairings:
            known = pairings.get(key)
            if known is None or not known.is_open(now):
                return None
            if hmac.compare_digest(presented, known.digest):
                return pairings.pop(key)
            if known.wrong_tries + 1 < MAX_TRIES:
                pairings[key] = replace(known, wrong_tries=known.wrong_tries + 1)
            else:
                del pairings[key]
            return None

    def _current(self) -> dict[str, Pairing]:
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                self._file_state, self._pairings = None, {}
                return self._pairings
            except OSError as error:
                raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._file_state:
                self._pairings, self._file_state = self._read(), seen
            return self._pairings

    def _read(self) -> dict[str, Pairing]:
        try:
            records = _File.model_validate_json(self._path.read_bytes()).pairings
            return {record.key: record.pairing() for record in records}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValidationError, KeyError) as error:
            raise AccessError(f"{self._path}: damaged; remove it and create the codes again") from error

    @contextmanager
    def _update(self) -> Iterator[dict[str, Pairing]]:
        with lock_file(self._path):
            pairings = self._read()
            yield pairings
            records = tuple(_Record.of(known) for known in pairings.values())
            content = _File(sha256=digest_of(records), pairings=records).model_dump_json(indent=1).encode()
            replace_file(self._path, content, mode=0o600)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
