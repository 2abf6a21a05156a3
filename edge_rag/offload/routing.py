"""Places where work is done, and which of several remotes gets a request. Pure.

Requests about the same documents go to the same remote, which has their KV cached, by weighted rendezvous hashing
(Schindelhauer and Schomaker, SPAA 2005): a remote's score is weight / -ln(h), where h in (0, 1) is a hash of the
request's documents and the remote's name; the highest score wins. Adding or removing a remote moves only its own
requests. Load is bounded (Mirrokni, Thorup and Zadimoghaddam, SODA 2018): a remote with more than 1.25 times its share
is skipped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.offload.remotes.latency_model import Estimate

BOUND: Final = 1.25
"""Multiple of its fair share up to which a remote gets requests."""


@dataclass(frozen=True, slots=True)
class AffinityCandidate:
    """What affinity routing needs of a remote.

    Attributes:
        speed: Requests a second that it can serve, as measured; None if not measured.
        spare: Requests that it could start at once; None if not reported.
    """

    name: str
    speed: float | None
    in_flight: int
    spare: int | None = None


def documents_key(documents: Iterable[str]) -> bytes:
    """Returns a key that is equal for requests about the same documents, in any order."""
    return hashlib.sha256("\0".join(sorted(set(documents))).encode()).digest()


def affinity(key: bytes, candidates: Sequence[AffinityCandidate]) -> tuple[str, ...]:
    """Returns the names, best first; remotes over their bound or without spare capacity come last."""
    measured = [each.speed for each in candidates if each.speed is not None]
    assumed = sum(measured) / len(measured) if measured else 1.0
    weights = {each.name: _rounded(assumed if each.speed is None else each.speed) for each in candidates}
    total, load = sum(weights.values()), 1 + sum(each.in_flight for each in candidates)

    def order(each: AffinityCandidate) -> tuple[bool, float]:
        share = math.ceil(BOUND * load * weights[each.name] / total)
        full = each.in_flight + 1 > share or (each.spare is not None and each.spare <= 0)
        return full, -weights[each.name] / -math.log(_hash(key, each.name))

    ordered = sorted(candidates, key=order)
    if all(order(each)[0] for each in candidates):
        ordered = sorted(candidates, key=lambda each: (each.in_flight + 1) / weights[each.name])
    return tuple(each.name for each in ordered)


def _rounded(speed: float) -> float:
    """Rounds to a power of two, so that small changes of the measurement move no request."""
    return 2.0 ** round(math.log2(min(max(speed, 1e-6), 1e6)))


def _hash(key: bytes, name: str) -> float:
    digest = hashlib.sha256(key + name.encode()).digest()
    return (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)


class Place(Enum):
    """Where work is done."""

    LOCAL = "local"
    REMOTE = "remote"
    BOTH = "both"

    @property
    def text(self) -> str:
        """Where, for the audit log."""
        texts = {Place.LOCAL: "locally", Place.REMOTE: "on a remote", Place.BOTH: "locally and on a remote"}
        return texts[self]


@dataclass(frozen=True, slots=True)
class RemoteInputs:
    """The known state of a remote."""

    candidate: AffinityCandidate
    estimate: Estimate
    allowed: bool
    supported: bool


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """Where work is done.

    Attributes:
        remotes: Names of the remotes that may be used, best first; empty if nothing may leave.
        reason: A short clause without numbers.
    """

    place: Place
    remotes: tuple[str, ...]
    reason: str
