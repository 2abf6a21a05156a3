"""Who calls, and what they may do; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.query import Priority


class Role(Enum):
    """What a caller may do.

    READER: ask, search and read documents.
    WRITER: bring in, replace and remove documents.
    PEER: have answers written about passages they bring along, and texts embedded and reranked; nothing of what is kept
    here.
    ADMIN: everything, in every collection; look into the daemon, change its models, make collections.
    """

    READER = "reader"
    WRITER = "writer"
    PEER = "peer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a caller may use; None is no bound.

    Attributes:
        requests_per_minute: Calls begun within a minute, at least 1.
        tokens_per_minute: Prompt and generated tokens within a minute, at least 1.
        concurrent_requests: Calls under way at once, at least 1.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller.

    Attributes:
        name: Unique among all that have credentials; shares and usage are counted by it.
        roles: What they may do.
        collections: Where; None is everywhere.
        priority_ceiling: Most urgent class their requests get.
        quota: How much they may use.
    """

    name: str
    roles: frozenset[Role]
    collections: frozenset[str] | None = None
    priority_ceiling: Priority = Priority.INTERACTIVE
    quota: Quota = Quota()

    def is_a(self, role: Role) -> bool:
        """Whether they have a role."""
        return role in self.roles or Role.ADMIN in self.roles

    @property
    def seen(self) -> frozenset[str] | None:
        """The collections that exist for them; None where all do."""
        return None if Role.ADMIN in self.roles else self.collections

    def sees(self, collection: str) -> bool:
        """Whether a collection exists for them."""
        return self.seen is None or collection in self.seen

    def at_most(self, wanted: Priority) -> Priority:
        """Returns the class that a request gets for which one is wanted."""
        return max(wanted, self.priority_ceiling)


def local_identity(name: str) -> Identity:
    """Returns who calls from this box, where no credentials are asked for."""
    return Identity(name, EVERY_ROLE)


EVERY_ROLE: Final = frozenset(Role)
