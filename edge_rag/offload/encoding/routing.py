"""Where to embed and rerank: a function of what was measured. Pure.

Text that may leave only redacted stays: a vector of redacted text is another text's vector, and ranks are other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.core.query import Priority
from edge_rag.offload.generation.routing import SAFETY, Candidate, Choice, Place, ranking
from edge_rag.offload.generation.timeouts import LEAST_SHARE, UNKNOWN_SHARE
from edge_rag.offload.generation.timeouts import SAFETY as KEPT
from edge_rag.offload.remotes.latency_model import Pace

STAGE_SHARE: Final = 0.25
"""Share of the time left to a question's deadline that embedding, or reranking, may take. The answer needs the rest."""

SOONEST_HEDGE_S: Final = 0.1
"""However quick a remote mostly is, it is not taken for slow before, seconds."""

MOST_TEXTS: Final = 64
"""Most texts that a remote is sent at once."""

_FIRST_TEXTS: Final = 16
_LEAST_TEXTS: Final = 4
_BATCH_S: Final = 2.0
_BATCH_SHARE: Final = 0.2


class Work(Enum):
    """What is encoded.

    PASSAGES: those of a document that is stored; as many as it has, and nobody waits. QUESTIONS: one each. RANKS: a
    question with the passages that were found for it.
    """

    PASSAGES = "passages"
    QUESTIONS = "questions"
    RANKS = "ranks"

    @property
    def use(self) -> OffloadUse:
        """What a machine must be used for."""
        return OffloadUse.RERANK if self is Work.RANKS else OffloadUse.EMBED


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """What is known of a remote.

    Attributes:
        candidate: Name, speed and load.
        pace: How fast it does such work.
        lets_through: Whether its circuit breaker does.
        able: Whether it is used for this, and not known to have another model.
    """

    candidate: Candidate
    pace: Pace
    lets_through: bool
    able: bool


@dataclass(frozen=True, slots=True)
class EncodingFacts:
    """What is decided on.

    Attributes:
        work: What is to be done.
        mode: When other machines compute.
        rule: What of the collection may leave.
        sendable: Whether it is within what can be sent at once.
        priority: The request's class; None where nobody waits.
        within_s: Time that this may take, seconds; None without a deadline.
        texts: How many texts it is.
        ahead: Texts that are done here before.
        longest_s: Longest time that a remote is waited for, seconds.
        key: What it has in common with requests about the same text.
        strained: Whether this box is held back or on battery.
        local: How fast this box does such work.
        remotes: The others.
    """

    work: Work
    mode: OffloadMode
    rule: OffloadRule
    sendable: bool
    priority: Priority | None
    within_s: float | None
    texts: int
    ahead: int
    longest_s: float
    key: bytes
    strained: bool
    local: Pace
    remotes: tuple[EncoderFacts, ...]


def choose_encoder(facts: EncodingFacts) -> Choice:
    """Decides where texts are encoded.

    What may not leave never does, whatever the mode; and where no remote is any good, it is done here.
    """
    if facts.mode is OffloadMode.NEVER:
        return _here("offload is off")
    if facts.rule is OffloadRule.NEVER:
        return _here("the collection does not leave this box")
    if facts.rule is OffloadRule.REDACTED:
        return _here("redacted text has other vectors and ranks")
    if not facts.sendable:
        return _here("it is nothing, or more than can be sent at once")
    able = [remote for remote in facts.remotes if remote.able]
    if not able:
        return _here("no remote has the same model")
    usable = [remote for remote in able if remote.lets_through]
    if not usable:
        return _here("every remote failed lately")
    by_name = {remote.candidate.name: remote for remote in usable}
    ordered = [by_name[name] for name in ranking(facts.key, [remote.candidate for remote in usable])]
    return _in_bulk(facts, ordered) if facts.work is Work.PASSAGES else _while_somebody_waits(facts, ordered)


def numbers(facts: EncodingFacts) -> dict[str, float]:
    """Returns what was decided on, by name, for the trail of decisions."""
    found: dict[str, float] = {
        "texts": facts.texts,
        "ahead_texts": facts.ahead,
        "strained": float(facts.strained),
        "remotes": len(facts.remotes),
    }
    if facts.within_s is not None:
        found["within_s"] = facts.within_s
    found |= _measured("local", facts.local, facts.ahead + facts.texts)
    for remote in facts.remotes:
        name = remote.candidate.name
        found |= _measured(name, remote.pace, min(batch_texts(remote.pace, facts.longest_s), facts.texts))
        found |= {
            f"{name}_able": float(remote.able),
            f"{name}_lets_through": float(remote.lets_through),
            f"{name}_under_way": remote.candidate.in_flight,
        }
        if remote.pace.per_text_s is not None:
            found |= {f"{name}_round_trip_s": remote.pace.round_trip_s, f"{name}_queue_s": remote.pace.queue_s}
    return found


def batch_texts(pace: Pace, longest_s: float) -> int:
    """Returns how many texts of a document a remote is sent at once: what it does in 2 s and in a fifth of the longest
    wait, at most 64; few until that is known.

    Args:
        pace: How fast it is.
        longest_s: Longest time that it is waited for, seconds.
    """
    if pace.per_text_s is None:
        return _FIRST_TEXTS
    return int(min(MOST_TEXTS, max(_LEAST_TEXTS, min(_BATCH_S, _BATCH_SHARE * longest_s) / max(pace.per_text_s, 1e-6))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a remote is waited for.

    Attributes:
        hedge_s: When this box does the same as well, seconds after asking; None for not at all.
        give_up_s: When the remote is given up, seconds after asking.
    """

    hedge_s: float | None
    give_up_s: float


def waiting(texts: int, within_s: float | None, longest_s: float, remote: Pace, local: Pace) -> Waiting:
    """Decides how long a remote is waited for, so that enough of the time is left for this box.

    Args:
        texts: How many texts it was asked for.
        within_s: Time that this may take altogether, seconds, or None.
        longest_s: The operator's bound, seconds.
        remote: How fast it is.
        local: How fast this box is.
    """
    give_up, here = longest_s, local.expected_s(texts)
    if within_s is not None:
        kept = UNKNOWN_SHARE * within_s if here is None else KEPT * here
        # Where this box would be late in any case, the remote gets all of the time.
        left = within_s if here is not None and here >= within_s else within_s - kept
        give_up = min(give_up, max(LEAST_SHARE * within_s, left))
    unusual = remote.unusual_s(texts)
    hedge = None if unusual is None else max(SOONEST_HEDGE_S, unusual)
    return Waiting(None if hedge is None or hedge >= give_up else hedge, give_up)


def _in_bulk(facts: EncodingFacts, usable: list[EncoderFacts]) -> Choice:
    names = tuple(remote.candidate.name for remote in usable)
    if facts.mode is OffloadMode.PREFER_REMOTE:
        return Choice(Place.REMOTE, names, "a remote is preferred")
    if facts.strained:
        return Choice(Place.REMOTE, names, "this box is held back or on battery")
    here = facts.local.expected_s(facts.texts)
    helpful = tuple(
        remote.candidate.name
        for remote in usable
        if _before(remote.pace.expected_s(min(batch_texts(remote.pace, facts.longest_s), facts.texts)), here)
    )
    if helpful:
        return Choice(Place.BOTH, helpful, "each takes what it can")
    return Choice(Place.LOCAL, (), "it is done here before a remote had begun to help")


def _while_somebody_waits(facts: EncodingFacts, usable: list[EncoderFacts]) -> Choice:
    timely = tuple(
        remote.candidate.name
        for remote in usable
        if _in_time(remote.pace.expected_s(facts.texts), facts.within_s, unknown=True)
    )
    here = facts.local.expected_s(facts.ahead + facts.texts)
    match facts.mode:
        case OffloadMode.PREFER_REMOTE if timely:
            return Choice(Place.REMOTE, timely, "a remote is preferred")
        case OffloadMode.RACE if timely and facts.priority in (Priority.INTERACTIVE, None):
            return Choice(Place.BOTH, timely, "somebody waits, so both begin")
    if facts.strained and timely:
        return Choice(Place.REMOTE, timely, "this box is held back or on battery")
    if _in_time(here, facts.within_s, unknown=facts.ahead == 0):
        return _here("it will be in time here")
    if timely:
        return Choice(Place.REMOTE, timely, "it would be late here")
    soonest = min(usable, key=lambda remote: remote.pace.expected_s(facts.texts) or 0.0)
    if _before(soonest.pace.expected_s(facts.texts), here):
        return Choice(
            Place.REMOTE, (soonest.candidate.name,), "it would be late everywhere, and a remote is done first"
        )
    return _here("it would be late everywhere, and this box is done first")


def _here(reason: str) -> Choice:
    return Choice(Place.LOCAL, (), reason)


def _before(there_s: float | None, here_s: float | None) -> bool:
    return there_s is None or here_s is None or there_s < here_s


def _in_time(expected_s: float | None, within_s: float | None, unknown: bool) -> bool:
    if expected_s is None:
        return unknown
    return within_s is None or SAFETY * expected_s <= within_s


def _measured(name: str, pace: Pace, texts: int) -> dict[str, float]:
    expected, speed = pace.expected_s(texts), pace.texts_per_s
    return {} if expected is None or speed is None else {f"{name}_finish_s": expected, f"{name}_texts_per_s": speed}
