"""Identities and tokens as they are written into files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edge_rag.access.tokens import Token
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.query import Priority

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Positive = Annotated[int, Field(ge=1)] | None


class IdentityRecord(BaseModel):
    """An identity, field by field."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    roles: tuple[Role, ...]
    collections: tuple[str, ...] | None
    priority_max: str
    requests_per_minute: _Positive
    tokens_per_minute: _Positive
    concurrent_requests: _Positive

    def identity(self) -> Identity:
        """Returns the identity.

        Raises:
            KeyError: There is no such priority.
        """
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
    """A token, field by field: first its key, since files are checked by a digest over the fields in their order."""

    created: datetime
    expires: datetime | None

    @classmethod
    def of(cls, token: Token) -> TokenRecord:
        """Returns a token's record."""
        return cls(
            key=token.key,
            sha256=token.digest.hex(),
            created=token.created,
            expires=token.expires,
            **identity_fields(token.identity),
        )

    def token(self) -> Token:
        """Returns the token.

        Raises:
            KeyError: There is no such priority.
        """
        return Token(self.key, bytes.fromhex(self.sha256), self.identity(), self.created, self.expires)


def identity_fields(identity: Identity) -> dict[str, Any]:
    """Returns the fields of an identity's record."""
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
    """Returns the SHA-256 that a file has over its records, in hexadecimal: over their fields in order."""
    return hashlib.sha256("\n".join(record.model_dump_json() for record in records).encode()).hexdigest()
