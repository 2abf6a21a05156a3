"""What borrowing encoders needs, whatever they do: who is there, what the operator chose, and how fast this box is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edge_rag.core.asker import Asker
from edge_rag.core.offload import OffloadMode, OffloadRule
from edge_rag.offload.encoding.client import Courier
from edge_rag.offload.encoding.encoding_desk import EncodingDesk
from edge_rag.offload.encoding.routing import (
    STAGE_SHARE,
    EncoderFacts,
    EncodingFacts,
    Waiting,
    Work,
    choose_encoder,
    waiting,
)
from edge_rag.offload.generation.routing import Choice
from edge_rag.offload.remotes.pace import Pace


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be encoded, as far as deciding is concerned.

    Attributes:
        work: What is to be done.
        asker: For whom.
        rule: What of the collection may leave.
        texts: How many texts it is.
        key: What it has in common with requests about the same text.
        sendable: Whether it can be sent: not empty, and within what a lender takes.
    """

    work: Work
    asker: Asker
    rule: OffloadRule
    texts: int
    key: bytes
    sendable: bool = True


class Loan:
    """Any thread.

    Args:
        courier: Brings texts to machines.
        desks: The machines that encode, by name.
        mode: When they are asked.
        longest_s: Longest time that one is waited for, seconds.
        strained: Whether this box is held back or on battery.

    Attributes:
        longest_s: Longest time that a machine is waited for, seconds.
    """

    def __init__(
        self,
        courier: Courier,
        desks: Mapping[str, EncodingDesk],
        mode: OffloadMode,
        longest_s: float,
        strained: Callable[[], bool],
    ) -> None:
        self.courier = courier
        self.desks = desks
        self._mode = mode
        self.longest_s = longest_s
        self._strained = strained
        self._here = {work: Pace() for work in Work}

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""
        return self.courier.dispatch.clock

    def introduce(self) -> None:
        """Has every machine say which models it has; what others have is in the log, the trail and the status."""
        for desk in self.desks.values():
            self.courier.dispatch.begin(self.courier.introduce(desk, self.longest_s))

    def place(self, wanted: Wanted, ahead: int = 0, given: Mapping[str, int] | None = None) -> Choice:
        """Decides where something is encoded, and says so in the trail, unless nothing of it may leave anyway.

        Args:
            wanted: What.
            ahead: Texts that are done here before.
            given: Requests of the same batch that each machine gets before.
        """
        now = self.clock()
        facts = self._facts(wanted, ahead, given or Counter(), now)
        choice = choose_encoder(facts)
        used = any(wanted.work.use in desk.desk.remote.uses for desk in self.desks.values())
        if used and wanted.rule is not OffloadRule.NEVER:
            self.courier.announcer.placed(wanted.asker, facts, choice, now)
        return choice

    def asks(self, desk: EncodingDesk, work: Work) -> bool:
        """Whether a machine is asked for such work, now."""
        now = self.clock()
        return desk.able(work, now) and desk.desk.breaker.lets_through(now)

    def waiting(self, desk: EncodingDesk, wanted: Wanted) -> Waiting:
        """Decides how long a machine is waited for."""
        within = _within(wanted, self.clock())
        return waiting(wanted.texts, within, self.longest_s, desk.paces[wanted.work], self._here[wanted.work])

    def expected_s(self, work: Work, texts: int) -> float:
        """Returns how long so many texts are likely to take here, seconds; 0 where nothing was measured."""
        return self._here[work].expected_s(texts) or 0.0

    def measure(self, work: Work, texts: int, took_s: float) -> None:
        """Takes what texts took here; one that another thread takes at the same moment may be lost."""
        if texts:
            self._here[work] = self._here[work].after(texts, took_s)

    def _facts(self, wanted: Wanted, ahead: int, given: Mapping[str, int], now: float) -> EncodingFacts:
        return EncodingFacts(
            work=wanted.work,
            mode=self._mode,
            rule=wanted.rule,
            sendable=wanted.sendable,
            priority=wanted.asker.priority,
            within_s=_within(wanted, now),
            texts=wanted.texts,
            ahead=ahead,
            longest_s=self.longest_s,
            key=wanted.key,
            strained=self._strained(),
            local=self._here[wanted.work],
            remotes=tuple(_loaded(desk.facts(wanted.work, now), given) for desk in self.desks.values()),
        )


def _within(wanted: Wanted, now: float) -> float | None:
    deadline = wanted.asker.deadline
    return None if deadline is None else max(0.001, STAGE_SHARE * (deadline - now))


def _loaded(facts: EncoderFacts, given: Mapping[str, int]) -> EncoderFacts:
    candidate = facts.candidate
    return replace(facts, candidate=replace(candidate, under_way=candidate.under_way + given.get(candidate.name, 0)))
