"""Division of the spool's bytes among those who upload; pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

_SHARE: Final = 3
"""An owner may hold up to this many times the free bytes; a lone owner gets three quarters of the spool."""

_LEAST_BYTES: Final = 4096
"""Bytes that a document takes at least: a block of the file system."""


@dataclass(eq=False, slots=True)
class Claim:
    """Bytes of the spool that a document needs.

    Attributes:
        size_bytes: Its size; at least the smallest that a file takes on disk.
    """

    owner: str
    size_bytes: int

    def __post_init__(self) -> None:
        self.size_bytes = max(_LEAST_BYTES, self.size_bytes)


class SpoolShares:
    """Grants claims to the spool's bytes. Not safe for concurrent use.

    A claim is granted while its owner then holds at most ``3 *`` the bytes that stay free (Choudhury and Hahne, Dynamic
    Queue Length Thresholds for Shared-Memory Packet Switches, 1998), so that no owner can fill the spool. The first
    claim of an owner needs only free bytes, and the only claim at all is always granted, so that any document passes.

    Waiting claims are granted to the owner that holds least first, then in order of arrival. No claim
    overtakes one whose owner holds nothing; large documents are therefore not starved by small ones.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._granted: set[Claim] = set()
        self._waiting: list[Claim] = []
        self._held: Counter[str] = Counter()

    @property
    def used_bytes(self) -> int:
        return self._held.total()

    def held_bytes(self, owner: str) -> int:
        """Returns the bytes of an owner's granted claims."""
        return self._held[owner]

    def add(self, claim: Claim) -> None:
        """Grants a claim in any case, because its bytes are on disk."""
        self._granted.add(claim)
        self._held[claim.owner] += claim.size_bytes

    def request(self, claim: Claim) -> list[Claim]:
        self._waiting.append(claim)
        return self._grant()

    def release(self, claim: Claim) -> list[Claim]:
        if claim in self._granted:
            self._granted.remove(claim)
            self._hold(claim.owner, -claim.size_bytes)
        elif claim in self._waiting:
            self._waiting.remove(claim)
        return self._grant()

    def shrink(self, claim: Claim, size_bytes: int) -> list[Claim]:
        surplus = claim.size_bytes - max(_LEAST_BYTES, size_bytes)
        if claim not in self._granted or surplus <= 0:
            return []
        claim.size_bytes -= surplus
        self._hold(claim.owner, -surplus)
        return self._grant()

    def _grant(self) -> list[Claim]:
        granted: list[Claim] = []
        while (claim := self._next()) is not None:
            self._waiting.remove(claim)
            self.add(claim)
            granted.append(claim)
        return granted

    def _next(self) -> Claim | None:
        for claim in sorted(self._waiting, key=lambda claim: self._held[claim.owner]):
            if self._fits(claim):
                return claim
            if not self._held[claim.owner]:
                return None
        return None

    def _fits(self, claim: Claim) -> bool:
        held = self._held[claim.owner]
        free = self.capacity_bytes - self.used_bytes - claim.size_bytes
        if free < 0:
            return not self._granted
        return not held or held + claim.size_bytes <= _SHARE * free

    def _hold(self, owner: str, size_bytes: int) -> None:
        self._held[owner] += size_bytes
        if not self._held[owner]:
            del self._held[owner]
