"""Who of those that announce themselves is known here: what was heard is a hint, what TLS proves counts.

No token is shown in any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.client.failures import ClientError
from edge_rag.client.known_servers import KnownServer
from edge_rag.client.peer_certificate import proves_itself
from edge_rag.discovery.announcement import FoundServer

_AT_ONCE: Final = 16


class Standing(Enum):
    """What is known of a box that announces itself.

    PAIRED: There are credentials for it here, and it has proved that it is the box they are for.
    UNPAIRED: There are none.
    MISMATCH: It has the name or the address of a box that is known here, or claims its certificate, but is another.
    UNREACHABLE: It claims the certificate of a box that is known here, but cannot be reached to prove it.
    """

    PAIRED = "paired"
    UNPAIRED = "unpaired"
    MISMATCH = "mismatch"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Recognized:
    """A box that announces itself.

    Attributes:
        found: What it said.
        standing: What is known of it.
        address: Where it is to be called; where it proved itself, if it did.
        known: The box it is, or is mistaken for; None where there is none.
    """

    found: FoundServer
    standing: Standing
    address: str
    known: KnownServer | None

    def warning(self) -> str:
        """Returns what to say to people of a box that is not who it seems to be."""
        box = "another box" if self.known is None else f"{self.known.box or self.known.address}, which is known here"
        return (
            f"WARNING: what answers at {self.address} as {self.found.name} is not {box}. It was told nothing. Where "
            "that box has got new certificates, pair anew with `edge-rag connect`; else somebody pretends to be it"
        )


def recognize(found: Iterable[FoundServer], known: Sequence[KnownServer], timeout_s: float) -> list[Recognized]:
    """Tells who those that announce themselves are, in their order.

    Args:
        found: What they said.
        known: The boxes that are known here.
        timeout_s: Longest time for one connection, seconds.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(lambda one: _recognized(one, known, timeout_s), found))


def answering(known: Sequence[KnownServer], timeout_s: float) -> list[KnownServer]:
    """Returns those of the known boxes that prove themselves where they were last, in their order.

    Args:
        known: The boxes.
        timeout_s: Longest time for one connection, seconds.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda one: _proof(one, (one.address,), timeout_s)[0], known)
        return [one for one, standing in zip(known, answers, strict=True) if standing is Standing.PAIRED]


def _recognized(found: FoundServer, known: Sequence[KnownServer], timeout_s: float) -> Recognized:
    claimed = [one for one in known if one.fingerprint() == found.sha256]
    worst = Recognized(found, Standing.UNPAIRED, found.addresses[0], None)
    for one in claimed:
        standing, address = _proof(one, found.addresses, timeout_s)
        if standing is Standing.PAIRED:
            return Recognized(found, standing, address, one)
        if worst.standing is not Standing.MISMATCH:
            worst = Recognized(found, standing, address, one)
    if not claimed:
        for one in known:
            if one.box == found.name or one.address in found.addresses:
                return Recognized(found, Standing.MISMATCH, found.addresses[0], one)
    return worst


def _proof(known: KnownServer, addresses: Iterable[str], timeout_s: float) -> tuple[Standing, str]:
    """Returns whether a box proves at one of some addresses who it is, and at which."""
    outcome, where = Standing.UNREACHABLE, known.address
    for address in addresses:
        try:
            if proves_itself(known, address, timeout_s):
                return Standing.PAIRED, address
        except ClientError:
            continue
        outcome, where = Standing.MISMATCH, address
    return outcome, where
