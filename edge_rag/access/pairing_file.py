"""Codes that wait to be used: made by the command line, used up by the daemon, by way of one file.

The file holds hashes of secrets. Everything that makes a code worth less, a wrong try or its use, is on the disk before
anybody hears of it, so a restart gives no further tries and no second use.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_rag.access.tokens import IdentityRecord, Sha256, digest_of, identity_fields
from edge_rag.core.atomic_file import lock_file, replace_file
from edge_rag.core.identity import Identity
from edge_rag.core.pairing_code import PairingCode
from edge_rag.errors import AccessError

MOST_TRIES: Final = 5
"""Wrong secrets after which a code is void."""

_NOBODY: Final = hashlib.sha256(secrets.token_bytes(32)).digest()


@dataclass(frozen=True, slots=True)
class Pairing:
    """A code as it is kept.

    Attributes:
        key: The code's key; one code at a time has it.
        digest: SHA-256 of its secret.
        identity: Whom it lets in.
        token_days: Life of the token that it is exchanged for, days; None for ever.
        created: When it was made, UTC.
        expires: When it ends, UTC.
        wrong_tries: Wrong secrets that were shown with its key, less than ``MOST_TRIES``.
    """

    key: str
    digest: bytes
    identity: Identity
    token_days: int | None
    created: datetime
    expires: datetime
    wrong_tries: int = 0

    def is_open(self, now: datetime) -> bool:
        """Whether it can be used; not after its end, nor where the clock was put back to before its beginning."""
        return self.created <= now < self.expires


def pairing(
    code: PairingCode, identity: Identity, token_days: int | None, created: datetime, expires: datetime
) -> Pairing:
    """Returns what is kept of a code."""
    return Pairing(code.key, _digest(code.secret), identity, token_days, created, expires)


class _Record(IdentityRecord):
    key: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{4}$")]
    sha256: Sha256
    token_days: Annotated[int, Field(ge=1)] | None
    created: datetime
    expires: datetime
    wrong_tries: Annotated[int, Field(ge=0, lt=MOST_TRIES)]

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
    def _is_as_written(self) -> _File:
        if self.sha256 != digest_of(self.pairings):
            raise ValueError("it was altered")
        return self


class PairingFile:
    """The codes of one daemon. May be used from any thread, and by several processes.

    Args:
        path: The file; there are no codes while it does not exist.
        now: The time, UTC.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now

    def open_pairings(self) -> tuple[Pairing, ...]:
        """Returns the codes that can be used.

        Raises:
            AccessError: The file cannot be read or is damaged.
        """
        now = self._now()
        return tuple(known for known in self._read().values() if known.is_open(now))

    def add(self, new: Pairing) -> None:
        """Adds a code, durable on return; one for the same name, or of the same key, is void from then on.

        Raises:
            AccessError: The file cannot be changed.
        """
        with self._changing() as pairings:
            for key, known in list(pairings.items()):
                if known.identity.name == new.identity.name or not known.is_open(self._now()):
                    del pairings[key]
            pairings[new.key] = new

    def redeem(self, key: str, secret: str) -> Pairing | None:
        """Uses a code up, durable on return; of several that try at once one succeeds.

        Args:
            key: The code's key.
            secret: Its secret; compared in the same time whatever part of it is right.

        Returns:
            The code, or None where none is open of this key and secret; a wrong secret counts against the key's code.

        Raises:
            AccessError: The file cannot be changed.
        """
        shown, now = _digest(secret), self._now()
        known = self._read().get(key)
        if known is None or not known.is_open(now):
            hmac.compare_digest(shown, _NOBODY)
            return None
        with self._changing() as pairings:
            known = pairings.get(key)
            if known is None or not known.is_open(now):
                return None
            if hmac.compare_digest(shown, known.digest):
                return pairings.pop(key)
            if known.wrong_tries + 1 < MOST_TRIES:
                pairings[key] = replace(known, wrong_tries=known.wrong_tries + 1)
            else:
                del pairings[key]
            return None

    def _read(self) -> dict[str, Pairing]:
        try:
            records = _File.model_validate_json(self._path.read_bytes()).pairings
            return {record.key: record.pairing() for record in records}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AccessError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValidationError, KeyError) as error:
            raise AccessError(f"{self._path}: damaged; remove it and make the codes anew") from error

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Pairing]]:
        with lock_file(self._path):
            pairings = self._read()
            yield pairings
            records = tuple(_Record.of(known) for known in pairings.values())
            content = _File(sha256=digest_of(records), pairings=records).model_dump_json(indent=1).encode()
            replace_file(self._path, content, mode=0o600)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
