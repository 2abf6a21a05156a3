"""Brings texts to another machine's encoders and what they computed back: whatever comes of it, it ends in time.

Which models a machine has is asked before the first text is sent to it, and one that has others gets none.

What borrowing encoders needs, whatever they do: who is there, what the operator chose, and how fast this box is.

A machine that encodes, as seen from here: which models it has, and how fast it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import structlog

from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.core.query import RequestContext
from edge_rag.errors import EdgeRagError, RemoteFailed, RemoteIncompatible
from edge_rag.offload.context import LoopThread
from edge_rag.offload.encoding.messages import Embedded, Ranks, SentCandidates, SentTexts
from edge_rag.offload.encoding.routing import (
    STAGE_SHARE,
    EncoderFacts,
    EncodingFacts,
    Waiting,
    Work,
    choose_encoder,
    waiting,
)
from edge_rag.offload.events import EncodingAnnouncer
from edge_rag.offload.generation.routing import Candidate, Choice
from edge_rag.offload.remotes.latency_model import Pace
from edge_rag.offload.remotes.remote_state import RemoteState

RECHECK_S: Final = 60.0
"""Time after which a machine that had other models is asked again which it has, seconds."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """The models that encode, by what names their results.

    Attributes:
        embedder: Names the vectors.
        dimension: Length of a vector.
        reranker: Names the scores.
    """

    embedder: str
    dimension: int
    reranker: str

    def differs(self, other: Encoders, work: Work) -> str:
        """Returns how another machine's differ where that matters for work; empty where they do not."""
        if work is Work.RANKS:
            same, there, here = self.reranker == other.reranker, other.reranker, self.reranker
        else:
            same = (self.embedder, self.dimension) == (other.embedder, other.dimension)
            there, here = f"{other.embedder} ({other.dimension})", f"{self.embedder} ({self.dimension})"
        role = "reranker" if work is Work.RANKS else "embedder"
        return "" if same else f"its {role} is {there[:200]}, the one here is {here}"


class EncodingRemote(Protocol):
    """Another machine that encodes. Used from one event loop; calls raise RemoteFailed and nothing else."""

    def seal_texts(self, sent: SentTexts) -> bytes:
        """Returns exactly the bytes that will be sent."""
        ...

    def seal_candidates(self, sent: SentCandidates) -> bytes:
        """Returns exactly the bytes that will be sent."""
        ...

    def describe(self, within_s: float) -> Awaitable[Encoders]:
        """Asks which models it has."""
        ...

    def embed(self, sealed: bytes, within_s: float) -> Awaitable[Embedded]:
        """Has texts embedded."""
        ...

    def rerank(self, sealed: bytes, within_s: float) -> Awaitable[Ranks]:
        """Has passages ranked."""
        ...


class EncoderState:
    """Keeps what is known of it. The event loop writes, any thread reads.

    Args:
        desk: What else it is asked, its circuit breaker and counts.
        remote: How it is asked to encode.
    """

    def __init__(self, desk: RemoteState, remote: EncodingRemote) -> None:
        self.desk = desk
        self.remote = remote
        self.paces = {work: Pace() for work in Work}
        self.known: Encoders | None = None
        self._unfit: dict[Work, float] = {}

    @property
    def name(self) -> str:
        """What it is called."""
        return self.desk.remote.name

    def able(self, work: Work, now: float) -> bool:
        """Whether it is used for such work, and not known to have another model."""
        return work.use in self.desk.remote.uses and now >= self._unfit.get(work, now)

    def unfit(self, work: Work, now: float) -> None:
        """Notes that it has another model; it is asked again after a while."""
        self.known = None
        self._unfit[work] = now + RECHECK_S

    def fit(self, work: Work) -> None:
        """Notes that it has the same model."""
        self._unfit.pop(work, None)

    def facts(self, work: Work, now: float) -> EncoderFacts:
        """Returns what a decision is made on."""
        pace = self.paces[work]
        candidate = Candidate(self.name, pace.texts_per_s, self.desk.in_flight)
        return EncoderFacts(candidate, pace, self.desk.breaker.lets_through(now), self.able(work, now))


_Out = TypeVar("_Out")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EncoderResult(Generic[_Out]):
    """What a machine computed, checked.

    Attributes:
        value: What it is.
        queue_s: How long it waited there, as stated, seconds.
        compute_s: How long it was worked on there, as stated, seconds.
    """

    value: _Out
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class EncoderCall(Generic[_Out]):
    """What is brought to a machine.

    Attributes:
        work: What is to be done.
        context: For whom.
        texts: How many texts it is, at least 1.
        seal: Returns exactly the bytes that are sent; raises PermissionDenied where nothing may leave.
        ask: Sends them and returns what came back, checked; given the longest time, seconds. Raises RemoteFailed.
    """

    work: Work
    context: RequestContext
    texts: int
    seal: Callable[[EncodingRemote], bytes]
    ask: Callable[[EncodingRemote, bytes, float], Awaitable[EncoderResult[_Out]]]


class EncoderCaller:
    """Used on the event loop of a dispatch.

    Args:
        dispatch: The event loop, and what is noted of each machine.
        models: This box's encoders.
        announcer: Tells what is decided.
    """

    def __init__(self, dispatch: LoopThread, models: Encoders, announcer: EncodingAnnouncer) -> None:
        self.dispatch = dispatch
        self.models = models
        self.announcer = announcer

    async def carry(self, desk: EncoderState, parcel: EncoderCall[_Out], within_s: float) -> _Out:
        """Has a machine do something; on the event loop.

        Args:
            desk: The machine.
            parcel: What it is to do.
            within_s: Longest time, seconds.

        Raises:
            RemoteFailed: It did not, or not as it must; that is noted.
            PermissionDenied: Nothing may leave; nothing was sent.
        """
        desk.desk.in_flight += 1
        try:
            async with asyncio.timeout(within_s):
                return await self._ask(desk, parcel, within_s)
        except TimeoutError as error:
            raise self._wrong(desk, RemoteFailed("it was not done in the time it had")) from error
        except RemoteIncompatible as error:
            self._unfit(desk, parcel.work, str(error))
            raise
        except RemoteFailed as error:
            raise self._wrong(desk, error) from error
        except EdgeRagError:
            raise
        except Exception as error:
            raise self._wrong(desk, RemoteFailed(f"asking it failed: {error!r}")) from error
        finally:
            desk.desk.in_flight -= 1

    async def introduce(self, desk: EncoderState, within_s: float) -> None:
        """Asks a machine which models it has, before anything is to be done, and says so aloud where it has others."""
        for work in Work:
            if work.use in desk.desk.remote.uses:
                try:
                    async with asyncio.timeout(within_s):
                        await self._agree(desk, work, within_s)
                except RemoteIncompatible as error:
                    self._unfit(desk, work, str(error))
                except (RemoteFailed, TimeoutError) as error:
                    desk.desk.last_problem = str(error) or "it does not answer"
                    return

    def lied(self, desk: EncoderState, work: Work) -> None:
        """Notes that a machine gives out vectors of another model as those of this one; on the event loop."""
        problem = "a vector it sent is not the one that its model gives here; it is asked no more for now"
        self._wrong(desk, RemoteFailed(problem))
        self._unfit(desk, work, problem)

    async def _ask(self, desk: EncoderState, parcel: EncoderCall[_Out], within_s: float) -> _Out:
        dispatch, began = self.dispatch, self.dispatch.clock()
        if not desk.desk.breaker.lets_through(began):
            raise RemoteFailed("it is left alone", busy=True)
        dispatch.tried(desk.desk)
        await self._agree(desk, parcel.work, within_s)
        sealed = parcel.seal(desk.remote)
        asked = dispatch.clock()
        self.announcer.sent(parcel.context, desk.name, parcel.work, sealed, parcel.texts, asked)
        desk.desk.sent_bytes += len(sealed)
        arrived = await parcel.ask(desk.remote, sealed, max(0.001, within_s - (asked - began)))
        took = dispatch.clock() - asked
        pace = desk.paces[parcel.work]
        desk.paces[parcel.work] = pace.after(parcel.texts, took, arrived.queue_s, arrived.compute_s)
        if parcel.work.use is OffloadUse.RERANK:
            desk.desk.reranked += 1
        else:
            desk.desk.embedded_texts += parcel.texts
        dispatch.succeeded(desk.desk)
        return arrived.value

    async def _agree(self, desk: EncoderState, work: Work, within_s: float) -> None:
        if desk.known is None:
            desk.known = await desk.remote.describe(within_s)
        problem = self.models.differs(desk.known, work)
        if problem:
            raise RemoteIncompatible(problem)
        desk.fit(work)

    def _unfit(self, desk: EncoderState, work: Work, problem: str) -> None:
        now = self.dispatch.clock()
        desk.unfit(work, now)
        desk.desk.last_problem = problem
        self.dispatch.succeeded(desk.desk)  # it is there and does what it can
        self.announcer.unfit(desk.name, work, problem, now)
        _log.error("a machine has other models than this box and is not asked", remote=desk.name, problem=problem)

    def _wrong(self, desk: EncoderState, error: RemoteFailed) -> RemoteFailed:
        if not error.busy:
            desk.known = None  # whoever is there next may be another
        self.dispatch.went_wrong(desk.desk, str(error), error.busy)
        return error


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """What is to be encoded, as far as deciding is concerned.

    Attributes:
        work: What is to be done.
        context: For whom.
        rule: What of the collection may leave.
        texts: How many texts it is.
        key: What it has in common with requests about the same text.
        sendable: Whether it can be sent: not empty, and within what a lender takes.
    """

    work: Work
    context: RequestContext
    rule: OffloadRule
    texts: int
    key: bytes
    sendable: bool = True


class EncoderOffload:
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
        courier: EncoderCaller,
        desks: Mapping[str, EncoderState],
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

    def place(self, wanted: EncodeRequest, ahead: int = 0, given: Mapping[str, int] | None = None) -> Choice:
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
            self.courier.announcer.placed(wanted.context, facts, choice, now)
        return choice

    def asks(self, desk: EncoderState, work: Work) -> bool:
        """Whether a machine is asked for such work, now."""
        now = self.clock()
        return desk.able(work, now) and desk.desk.breaker.lets_through(now)

    def waiting(self, desk: EncoderState, wanted: EncodeRequest) -> Waiting:
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

    def _facts(self, wanted: EncodeRequest, ahead: int, given: Mapping[str, int], now: float) -> EncodingFacts:
        return EncodingFacts(
            work=wanted.work,
            mode=self._mode,
            rule=wanted.rule,
            sendable=wanted.sendable,
            priority=wanted.context.priority,
            within_s=_within(wanted, now),
            texts=wanted.texts,
            ahead=ahead,
            longest_s=self.longest_s,
            key=wanted.key,
            strained=self._strained(),
            local=self._here[wanted.work],
            remotes=tuple(_loaded(desk.facts(wanted.work, now), given) for desk in self.desks.values()),
        )


def _within(wanted: EncodeRequest, now: float) -> float | None:
    deadline = wanted.context.deadline
    return None if deadline is None else max(0.001, STAGE_SHARE * (deadline - now))


def _loaded(facts: EncoderFacts, given: Mapping[str, int]) -> EncoderFacts:
    candidate = facts.candidate
    return replace(facts, candidate=replace(candidate, in_flight=candidate.in_flight + given.get(candidate.name, 0)))
