"""Decides where the passages of a document are embedded, from measured latencies. Pure.

Texts that may leave only redacted stay local: redaction would change their vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.remotes.latency_model import EncoderLatency
from edge_rag.offload.routing import Place, RoutingDecision

MIN_LATE_S: Final = 0.1
"""Earliest time after which a batch counts as late, seconds, also for a remote that is usually faster."""

MAX_BATCH_TEXTS: Final = 64
"""Most texts in one call."""

_INITIAL_BATCH_TEXTS: Final = 16
_MIN_BATCH_TEXTS: Final = 4
_BATCH_S: Final = 2.0
_BATCH_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """The known state of a remote."""

    name: str
    in_flight: int
    latency: EncoderLatency
    allowed: bool
    supported: bool


@dataclass(frozen=True, slots=True)
class EncoderRoutingInputs:
    """The inputs of the decision.

    Attributes:
        timeout_s: Longest time of a call, seconds.
    """

    mode: OffloadMode
    rule: OffloadRule
    texts: int
    timeout_s: float
    constrained: bool
    local: EncoderLatency
    remotes: tuple[EncoderInputs, ...]


def choose_encoders(inputs: EncoderRoutingInputs) -> RoutingDecision:
    """Decides where passages are embedded.

    The collection's rule takes precedence over the mode; without a usable remote the work is done locally.
    """
    if inputs.mode is OffloadMode.NEVER:
        return _local("offload is off")
    if inputs.rule is OffloadRule.NEVER:
        return _local("the collection does not allow offload")
    if inputs.rule is OffloadRule.REDACTED:
        return _local("redaction would change vectors")
    supported = [remote for remote in inputs.remotes if remote.supported]
    if not supported:
        return _local("no remote has the same model")
    usable = [remote for remote in supported if remote.allowed]
    if not usable:
        return _local("the circuit breaker of every remote is open")
    names = tuple(remote.name for remote in usable)
    if inputs.mode is OffloadMode.PREFER_REMOTE:
        return RoutingDecision(Place.REMOTE, names, "the mode prefers remotes")
    if inputs.constrained:
        return RoutingDecision(Place.REMOTE, names, "this box is throttled")
    local_s = inputs.local.expected_s(inputs.texts)
    helpful = tuple(remote.name for remote in usable if _before(_first_batch_s(inputs, remote), local_s))
    if helpful:
        return RoutingDecision(Place.BOTH, helpful, "all encoders share the document")
    return _local("the local encoder finishes before a remote returns its first batch")


def numbers(inputs: EncoderRoutingInputs) -> dict[str, float]:
    """Returns the inputs as named numbers for the audit log."""
    values: dict[str, float] = {
        "texts": inputs.texts,
        "constrained": float(inputs.constrained),
        "remotes": len(inputs.remotes),
    }
    values |= _measured("local", inputs.local, inputs.texts)
    for remote in inputs.remotes:
        name, latency = remote.name, remote.latency
        values |= _measured(name, latency, min(batch_texts(latency, inputs.timeout_s), inputs.texts))
        values |= {
            f"{name}_supported": float(remote.supported),
            f"{name}_breaker_allows": float(remote.allowed),
            f"{name}_in_flight": remote.in_flight,
        }
        if latency.per_text_s is not None:
            values |= {f"{name}_round_trip_s": latency.round_trip_s, f"{name}_queue_s": latency.queue_s}
    return values


def batch_texts(latency: EncoderLatency, timeout_s: float) -> int:
    """Returns the batch size: the remote's texts in 2 s and in a fifth of the timeout, at most 64; 16 before it was
    measured."""
    if latency.per_text_s is None:
        return _INITIAL_BATCH_TEXTS
    budget_s = min(_BATCH_S, _BATCH_SHARE * timeout_s)
    return int(min(MAX_BATCH_TEXTS, max(_MIN_BATCH_TEXTS, budget_s / max(latency.per_text_s, 1e-6))))


def late_after_s(texts: int, timeout_s: float, remote: EncoderLatency) -> float:
    """Returns the time after sending at which a batch is late, so that the local embedder may do it as well, seconds;
    infinite if it times out before, or if nothing was measured."""
    unusual = remote.unusual_s(texts)
    late = math.inf if unusual is None else max(MIN_LATE_S, unusual)
    return late if late < timeout_s else math.inf


def _first_batch_s(inputs: EncoderRoutingInputs, remote: EncoderInputs) -> float | None:
    return remote.latency.expected_s(min(batch_texts(remote.latency, inputs.timeout_s), inputs.texts))


def _local(reason: str) -> RoutingDecision:
    return RoutingDecision(Place.LOCAL, (), reason)


def _before(remote_s: float | None, local_s: float | None) -> bool:
    return remote_s is None or local_s is None or remote_s < local_s


def _measured(name: str, latency: EncoderLatency, texts: int) -> dict[str, float]:
    expected, speed = latency.expected_s(texts), latency.texts_per_s
    return {} if expected is None or speed is None else {f"{name}_finish_s": expected, f"{name}_texts_per_s": speed}
