"""Decides where texts are embedded and passages reranked, from measured latencies. Pure.

Texts that may leave only redacted stay local: redaction would change their vectors and scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.placement import OffloadMode, OffloadRule, OffloadUse
from edge_rag.offload.generation.routing import SAFETY, AffinityCandidate, Place, RoutingDecision, affinity
from edge_rag.offload.generation.timeouts import MIN_SHARE, UNKNOWN_SHARE
from edge_rag.offload.generation.timeouts import SAFETY as RESERVE
from edge_rag.offload.remotes.latency_model import EncoderLatency

STAGE_SHARE: Final = 0.25
"""Share of the time to a question's deadline that embedding, or reranking, may take. The answer needs the rest."""

MIN_HEDGE_S: Final = 0.1
"""Earliest hedge, seconds, also for a remote that is usually faster."""

MAX_BATCH_TEXTS: Final = 64
"""Most texts in one call."""

_INITIAL_BATCH_TEXTS: Final = 16
_MIN_BATCH_TEXTS: Final = 4
_BATCH_S: Final = 2.0
_BATCH_SHARE: Final = 0.2


class EncoderWork(Enum):
    """Kinds of work of an encoder.

    PASSAGES: the passages of a document, in the background. QUESTIONS: one question. RANKS: a question and the
    passages retrieved for it.
    """

    PASSAGES = "passages"
    QUESTIONS = "questions"
    RANKS = "ranks"

    @property
    def use(self) -> OffloadUse:
        return OffloadUse.RERANK if self is EncoderWork.RANKS else OffloadUse.EMBED


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """What is known of a remote."""

    candidate: AffinityCandidate
    latency: EncoderLatency
    allowed: bool
    supported: bool


@dataclass(frozen=True, slots=True)
class EncoderRoutingInputs:
    """What the decision is based on.

    Attributes:
        sendable: Whether it is not empty and within the limits of a request.
        within_s: Time that this work may take, seconds; None without a deadline.
        ahead: Texts that the local encoder does before.
        timeout_s: Longest time of a call, seconds.
    """

    work: EncoderWork
    mode: OffloadMode
    rule: OffloadRule
    sendable: bool
    within_s: float | None
    texts: int
    ahead: int
    timeout_s: float
    key: bytes
    constrained: bool
    local: EncoderLatency
    remotes: tuple[EncoderInputs, ...]


def choose_encoder(inputs: EncoderRoutingInputs) -> RoutingDecision:
    """Decides where texts are encoded.

    The collection's rule takes precedence over the mode; without a usable remote the work is done locally.
    """
    if inputs.mode is OffloadMode.NEVER:
        return _local("offload is off")
    if inputs.rule is OffloadRule.NEVER:
        return _local("the collection does not allow offload")
    if inputs.rule is OffloadRule.REDACTED:
        return _local("redaction would change vectors and scores")
    if not inputs.sendable:
        return _local("the request is empty or exceeds the limits of a remote call")
    supported = [remote for remote in inputs.remotes if remote.supported]
    if not supported:
        return _local("no remote has the same model")
    usable = [remote for remote in supported if remote.allowed]
    if not usable:
        return _local("the circuit breaker of every remote is open")
    by_name = {remote.candidate.name: remote for remote in usable}
    ordered = [by_name[name] for name in affinity(inputs.key, [remote.candidate for remote in usable])]
    return _background(inputs, ordered) if inputs.work is EncoderWork.PASSAGES else _foreground(inputs, ordered)


def numbers(inputs: EncoderRoutingInputs) -> dict[str, float]:
    """Returns the inputs as named numbers for the audit log."""
    values: dict[str, float] = {
        "texts": inputs.texts,
        "ahead_texts": inputs.ahead,
        "constrained": float(inputs.constrained),
        "remotes": len(inputs.remotes),
    }
    if inputs.within_s is not None:
        values["within_s"] = inputs.within_s
    values |= _measured("local", inputs.local, inputs.ahead + inputs.texts)
    for remote in inputs.remotes:
        name, latency = remote.candidate.name, remote.latency
        values |= _measured(name, latency, min(batch_texts(latency, inputs.timeout_s), inputs.texts))
        values |= {
            f"{name}_supported": float(remote.supported),
            f"{name}_breaker_allows": float(remote.allowed),
            f"{name}_in_flight": remote.candidate.in_flight,
        }
        if latency.per_text_s is not None:
            values |= {f"{name}_round_trip_s": latency.round_trip_s, f"{name}_queue_s": latency.queue_s}
    return values


def batch_texts(latency: EncoderLatency, timeout_s: float) -> int:
    """Returns the batch size for passages of a document: what the remote does in 2 s and in a fifth of the timeout, at
    most 64; 16 before it was measured."""
    if latency.per_text_s is None:
        return _INITIAL_BATCH_TEXTS
    budget_s = min(_BATCH_S, _BATCH_SHARE * timeout_s)
    return int(min(MAX_BATCH_TEXTS, max(_MIN_BATCH_TEXTS, budget_s / max(latency.per_text_s, 1e-6))))


@dataclass(frozen=True, slots=True)
class EncoderTimeouts:
    """Timeouts of one call.

    Attributes:
        hedge_s: When the local encoder starts the same work, seconds after sending; None for never.
        timeout_s: When the call is cancelled, seconds after sending.
    """

    hedge_s: float | None
    timeout_s: float


def encoder_timeouts(
    texts: int, within_s: float | None, limit_s: float, remote: EncoderLatency, local: EncoderLatency
) -> EncoderTimeouts:
    """Returns the timeouts of a call, which reserve enough time for the local encoder.

    Args:
        within_s: Time that the work may take in total, seconds, or None.
        limit_s: The operator's timeout, seconds.
    """
    timeout, local_s = limit_s, local.expected_s(texts)
    if within_s is not None:
        reserved = UNKNOWN_SHARE * within_s if local_s is None else RESERVE * local_s
        # If the local encoder would be late anyway, the remote gets all of the time.
        left = within_s if local_s is not None and local_s >= within_s else within_s - reserved
        timeout = min(timeout, max(MIN_SHARE * within_s, left))
    unusual = remote.unusual_s(texts)
    hedge = None if unusual is None else max(MIN_HEDGE_S, unusual)
    return EncoderTimeouts(None if hedge is None or hedge >= timeout else hedge, timeout)


def _background(inputs: EncoderRoutingInputs, usable: list[EncoderInputs]) -> RoutingDecision:
    names = tuple(remote.candidate.name for remote in usable)
    if inputs.mode is OffloadMode.PREFER_REMOTE:
        return RoutingDecision(Place.REMOTE, names, "the mode prefers remotes")
    if inputs.constrained:
        return RoutingDecision(Place.REMOTE, names, "this box is throttled or on battery")
    local_s = inputs.local.expected_s(inputs.texts)
    helpful = tuple(
        remote.candidate.name
        for remote in usable
        if _before(remote.latency.expected_s(min(batch_texts(remote.latency, inputs.timeout_s), inputs.texts)), local_s)
    )
    if helpful:
        return RoutingDecision(Place.BOTH, helpful, "all encoders share the document")
    return RoutingDecision(Place.LOCAL, (), "the local encoder finishes before a remote returns its first batch")


def _foreground(inputs: EncoderRoutingInputs, usable: list[EncoderInputs]) -> RoutingDecision:
    timely = tuple(
        remote.candidate.name
        for remote in usable
        if _in_time(remote.latency.expected_s(inputs.texts), inputs.within_s, unknown=True)
    )
    local_s = inputs.local.expected_s(inputs.ahead + inputs.texts)
    if inputs.mode is OffloadMode.PREFER_REMOTE and timely:
        return RoutingDecision(Place.REMOTE, timely, "the mode prefers remotes")
    if inputs.constrained and timely:
        return RoutingDecision(Place.REMOTE, timely, "this box is throttled or on battery")
    if _in_time(local_s, inputs.within_s, unknown=inputs.ahead == 0):
        return _local("the local encoder will meet the deadline")
    if timely:
        return RoutingDecision(Place.REMOTE, timely, "the local encoder would miss the deadline")
    fastest = min(usable, key=lambda remote: remote.latency.expected_s(inputs.texts) or 0.0)
    if _before(fastest.latency.expected_s(inputs.texts), local_s):
        reason = "every encoder would miss the deadline, and a remote finishes first"
        return RoutingDecision(Place.REMOTE, (fastest.candidate.name,), reason)
    return _local("every encoder would miss the deadline, and the local encoder finishes first")


def _local(reason: str) -> RoutingDecision:
    return RoutingDecision(Place.LOCAL, (), reason)


def _before(remote_s: float | None, local_s: float | None) -> bool:
    return remote_s is None or local_s is None or remote_s < local_s


def _in_time(expected_s: float | None, within_s: float | None, unknown: bool) -> bool:
    if expected_s is None:
        return unknown
    return within_s is None or SAFETY * expected_s <= within_s


def _measured(name: str, latency: EncoderLatency, texts: int) -> dict[str, float]:
    expected, speed = latency.expected_s(texts), latency.texts_per_s
    return {} if expected is None or speed is None else {f"{name}_finish_s": expected, f"{name}_texts_per_s": speed}
