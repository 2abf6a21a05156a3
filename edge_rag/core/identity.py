"""Callers, their roles and quotas; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.query import Priority


class Role(Enum):
    """What a caller may do.

    READER: ask, search and read documents.
    WRITER: add, replace and remove documents; not change settings of collections, or create or delete them.
    PEER: have answers generated from passages in the request, and texts embedded; no access to stored
        data.
    ADMIN: everything in every collection: read the daemon's state, change its models, create, change and delete
        collections.
    """

    READER = "reader"
    WRITER = "writer"
    PEER = "peer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quota:
    """Usage limits of a caller; None is unlimited.

    Attributes:
        requests_per_minute: Calls started within a minute, at least 1.
        tokens_per_minute: Prompt and generated tokens within a minute, at least 1.
        concurrent_requests: Calls in progress at once, at least 1.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller.

    Attributes:
        name: Unique among all credentials; fair shares and usage are counted by it.
        collections: Collections it may access; None for all.
        priority_ceiling: Most urgent scheduling class of its requests.
    """

    name: str
    roles: frozenset[Role]
    collections: frozenset[str] | None = None
    priority_ceiling: Priority = Priority.INTERACTIVE
    quota: Quota = Quota()

    def is_a(self, role: Role) -> bool:
        """Whether the caller has a role; ADMIN has all."""
        return role in self.roles or Role.ADMIN in self.roles

    @property
    def visible_collections(self) -> frozenset[str] | None:
        """Collections that the caller can see; None for all."""
        return None if Role.ADMIN in self.roles else self.collections

    def can_see(self, collection: str) -> bool:
        """Whether the caller can see a collection."""
        return self.visible_collections is None or collection in self.visible_collections

    def capped_priority(self, priority: Priority) -> Priority:
        """Returns the scheduling class of a request that asks for ``priority``."""
        return max(priority, self.priority_ceiling)


def local_identity(name: str) -> Identity:
    """Returns the identity of callers on this box, where no credentials are required."""
    return Identity(name, EVERY_ROLE)


EVERY_ROLE: Final = frozenset(Role)
