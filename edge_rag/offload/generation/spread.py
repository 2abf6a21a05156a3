"""Which of several remotes gets a request: those that share documents go to one that has their KV, within a bound.

Rendezvous hashing, weighted (Schindelhauer and Schomaker, SPAA 2005): a remote scores weight / -ln(h), h in (0, 1)
being a hash of the request's documents and the remote's name; the best score wins. A remote that comes or goes moves
only its own requests. With a bound on load (Mirrokni, Thorup and Zadimoghaddam, SODA 2018) a remote that has more than
its share by a quarter is passed over for the next.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

BOUND: Final = 1.25
"""How much of its fair share a remote may have before it is passed over."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A remote as far as spreading is concerned.

    Attributes:
        name: Unique.
        speed: Requests a second that it can serve, as measured; None where nothing was.
        under_way: Requests of ours that it has.
        spare: Requests it could take at once without making them wait; None where it does not say.
    """

    name: str
    speed: float | None
    under_way: int
    spare: int | None = None


def documents_key(documents: Iterable[str]) -> bytes:
    """Returns what requests have in common that use the same documents, in whatever order."""
    return hashlib.sha256("\0".join(sorted(set(documents))).encode()).digest()


def ranking(key: bytes, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Returns the names, the one to ask first; those over their bound or without spare places come last."""
    measured = [each.speed for each in candidates if each.speed is not None]
    assumed = sum(measured) / len(measured) if measured else 1.0
    weights = {each.name: _rounded(assumed if each.speed is None else each.speed) for each in candidates}
    total, load = sum(weights.values()), 1 + sum(each.under_way for each in candidates)

    def order(each: Candidate) -> tuple[bool, float]:
        share = math.ceil(BOUND * load * weights[each.name] / total)
        full = each.under_way + 1 > share or (each.spare is not None and each.spare <= 0)
        return full, -weights[each.name] / -math.log(_hash(key, each.name))

    ordered = sorted(candidates, key=order)
    if all(order(each)[0] for each in candidates):
        ordered = sorted(candidates, key=lambda each: (each.under_way + 1) / weights[each.name])
    return tuple(each.name for each in ordered)


def _rounded(speed: float) -> float:
    """Rounds to a power of two, so that small changes of what is measured move no request."""
    return 2.0 ** round(math.log2(min(max(speed, 1e-6), 1e6)))


def _hash(key: bytes, name: str) -> float:
    digest = hashlib.sha256(key + name.encode()).digest()
    return (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)
