"""Where to compute one answer: a function of what was measured. Pure.

Which of several remotes gets a request: those that share documents go to one that has their KV, within a bound.

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
from enum import Enum
from typing import Final

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.core.query import Priority
from edge_rag.offload.remotes.latency_model import Estimate

BOUND: Final = 1.25
"""How much of its fair share a remote may have before it is passed over."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A remote as far as spreading is concerned.

    Attributes:
        name: Unique.
        speed: Requests a second that it can serve, as measured; None where nothing was.
        in_flight: Requests of ours that it has.
        spare: Requests it could take at once without making them wait; None where it does not say.
    """

    name: str
    speed: float | None
    in_flight: int
    spare: int | None = None


def documents_key(documents: Iterable[str]) -> bytes:
    """Returns what requests have in common that use the same documents, in whatever order."""
    return hashlib.sha256("\0".join(sorted(set(documents))).encode()).digest()


def ranking(key: bytes, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Returns the names, the one to ask first; those over their bound or without spare places come last."""
    measured = [each.speed for each in candidates if each.speed is not None]
    assumed = sum(measured) / len(measured) if measured else 1.0
    weights = {each.name: _rounded(assumed if each.speed is None else each.speed) for each in candidates}
    total, load = sum(weights.values()), 1 + sum(each.in_flight for each in candidates)

    def order(each: Candidate) -> tuple[bool, float]:
        share = math.ceil(BOUND * load * weights[each.name] / total)
        full = each.in_flight + 1 > share or (each.spare is not None and each.spare <= 0)
        return full, -weights[each.name] / -math.log(_hash(key, each.name))

    ordered = sorted(candidates, key=order)
    if all(order(each)[0] for each in candidates):
        ordered = sorted(candidates, key=lambda each: (each.in_flight + 1) / weights[each.name])
    return tuple(each.name for each in ordered)


def _rounded(speed: float) -> float:
    """Rounds to a power of two, so that small changes of what is measured move no request."""
    return 2.0 ** round(math.log2(min(max(speed, 1e-6), 1e6)))


def _hash(key: bytes, name: str) -> float:
    digest = hashlib.sha256(key + name.encode()).digest()
    return (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)


SAFETY: Final = 1.25
"""What is predicted is taken to last so many times as long, when it is compared with a deadline."""


class Place(Enum):
    """Where an answer is written."""

    LOCAL = "local"
    REMOTE = "remote"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class RemoteFacts:
    """What is known of a remote.

    Attributes:
        candidate: Name, speed and load.
        outlook: What is expected of it for this request.
        lets_through: Whether its circuit breaker does.
        able: Whether it can write this kind of answer.
    """

    candidate: Candidate
    outlook: Estimate
    lets_through: bool
    able: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What is decided on.

    Attributes:
        mode: When other machines write answers.
        rule: What of the collection may leave.
        can_redact: Whether there are patterns to redact by.
        priority: The request's class.
        deadline_in_s: Until its deadline, seconds; None without one.
        prompt_tokens: Length of its prompt.
        documents: What it has in common with requests that use the same documents.
        waiting: Requests that wait here for a slot.
        strained: Whether this box is held back or on battery.
        local: What is expected here.
        remotes: The others.
    """

    mode: OffloadMode
    rule: OffloadRule
    can_redact: bool
    priority: Priority
    deadline_in_s: float | None
    prompt_tokens: int
    documents: bytes
    waiting: int
    strained: bool
    local: Estimate
    remotes: tuple[RemoteFacts, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided.

    Attributes:
        place: Where the answer is written.
        remotes: Names of the remotes that may help, the one to ask first at the head; empty where nothing may leave.
        reason: Why, as a short sentence without numbers.
    """

    place: Place
    remotes: tuple[str, ...]
    reason: str


def choose(facts: Facts) -> Choice:
    """Decides where an answer is written.

    What may not leave never does, whatever the mode; and where no remote is any good, the answer is written here.
    """
    if facts.mode is OffloadMode.NEVER:
        return Choice(Place.LOCAL, (), "offload is off")
    if facts.rule is OffloadRule.NEVER:
        return Choice(Place.LOCAL, (), "the collection does not leave this box")
    if facts.rule is OffloadRule.REDACTED and not facts.can_redact:
        return Choice(Place.LOCAL, (), "the collection leaves only redacted, and there are no patterns")
    able = [remote for remote in facts.remotes if remote.able]
    if not able:
        return Choice(Place.LOCAL, (), "no remote can write this kind of answer")
    usable = [remote for remote in able if remote.lets_through]
    if not usable:
        return Choice(Place.LOCAL, (), "every remote failed lately")
    names = ranking(facts.documents, [remote.candidate for remote in usable])
    by_name = {remote.candidate.name: remote for remote in usable}
    timely = tuple(name for name in names if _in_time(by_name[name].outlook, facts.deadline_in_s, unknown=True))
    match facts.mode:
        case OffloadMode.PREFER_REMOTE:
            if timely:
                return Choice(Place.REMOTE, timely, "a remote is preferred")
            return _sooner(facts, [by_name[name] for name in names], "no remote would be in time")
        case OffloadMode.RACE if facts.priority is Priority.INTERACTIVE and timely:
            return Choice(Place.BOTH, timely, "somebody waits, so both begin")
        case _:
            return _overflow(facts, timely, [by_name[name] for name in names])


def numbers(facts: Facts) -> dict[str, float]:
    """Returns what was decided on, by name, for the trail of decisions."""
    found: dict[str, float] = {
        "prompt_tokens": facts.prompt_tokens,
        "local_waiting": facts.waiting,
        "strained": float(facts.strained),
        "remotes": len(facts.remotes),
    }
    if facts.deadline_in_s is not None:
        found["deadline_in_s"] = facts.deadline_in_s
    found |= _expected("local", facts.local)
    for remote in facts.remotes:
        name = remote.candidate.name
        found |= _expected(name, remote.outlook)
        found |= {f"{name}_under_way": remote.candidate.in_flight, f"{name}_lets_through": float(remote.lets_through)}
        if remote.candidate.spare is not None:
            found[f"{name}_spare"] = remote.candidate.spare
    return found


def _overflow(facts: Facts, timely: tuple[str, ...], usable: list[RemoteFacts]) -> Choice:
    spare = timely or tuple(remote.candidate.name for remote in usable)
    if facts.strained and timely:
        return Choice(Place.REMOTE, timely, "this box is held back or on battery")
    if _in_time(facts.local, facts.deadline_in_s, unknown=facts.waiting == 0):
        return Choice(Place.LOCAL, spare, "it will be in time here")
    if timely:
        return Choice(Place.REMOTE, timely, "it would be late here")
    return _sooner(facts, usable, "it would be late everywhere")


def _sooner(facts: Facts, usable: list[RemoteFacts], reason: str) -> Choice:
    """Decides for whoever is done first, where nobody is in time."""
    ordered = sorted(usable, key=lambda remote: (remote.outlook.finish_s is None, remote.outlook.finish_s or 0.0))
    names = tuple(remote.candidate.name for remote in ordered)
    here, there = facts.local.finish_s, ordered[0].outlook.finish_s
    if here is not None and there is not None and there < here:
        return Choice(Place.REMOTE, names, f"{reason}, and a remote is done first")
    return Choice(Place.LOCAL, names, f"{reason}, and this box is done first")


def _in_time(outlook: Estimate, deadline_in_s: float | None, unknown: bool) -> bool:
    if deadline_in_s is None:
        return unknown or outlook.finish_s is not None
    return unknown if outlook.finish_s is None else SAFETY * outlook.finish_s <= deadline_in_s


def _expected(name: str, outlook: Estimate) -> dict[str, float]:
    given = {"first_text_s": outlook.first_text_s, "finish_s": outlook.finish_s}
    return {f"{name}_{key}": value for key, value in given.items() if value is not None}
