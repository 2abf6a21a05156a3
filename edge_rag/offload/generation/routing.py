"""Decides where an answer is generated, from measured latencies and loads. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.remotes.latency_model import Estimate
from edge_rag.offload.routing import Place, RemoteInputs, RoutingDecision, affinity

SAFETY: Final = 1.25
"""Factor on predicted times when they are compared with a deadline."""


@dataclass(frozen=True, slots=True)
class RoutingInputs:
    """The inputs of the decision.

    Attributes:
        deadline_in_s: Time to its deadline, seconds; None without one.
    """

    mode: OffloadMode
    rule: OffloadRule
    can_redact: bool
    deadline_in_s: float | None
    prompt_tokens: int
    documents: bytes
    waiting: int
    constrained: bool
    local: Estimate
    remotes: tuple[RemoteInputs, ...]


def choose(inputs: RoutingInputs) -> RoutingDecision:
    """Decides where an answer is generated.

    The collection's rule takes precedence over the mode; without a usable remote the answer is generated locally.
    """
    if inputs.mode is OffloadMode.NEVER:
        return RoutingDecision(Place.LOCAL, (), "offload is off")
    if inputs.rule is OffloadRule.NEVER:
        return RoutingDecision(Place.LOCAL, (), "the collection does not allow offload")
    if inputs.rule is OffloadRule.REDACTED and not inputs.can_redact:
        return RoutingDecision(Place.LOCAL, (), "the collection requires redaction and no pattern is configured")
    supported = [remote for remote in inputs.remotes if remote.supported]
    if not supported:
        return RoutingDecision(Place.LOCAL, (), "no remote supports this kind of answer")
    usable = [remote for remote in supported if remote.allowed]
    if not usable:
        return RoutingDecision(Place.LOCAL, (), "the circuit breaker of every remote is open")
    names = affinity(inputs.documents, [remote.candidate for remote in usable])
    by_name = {remote.candidate.name: remote for remote in usable}
    timely = tuple(name for name in names if _in_time(by_name[name].estimate, inputs.deadline_in_s, unknown=True))
    if inputs.mode is OffloadMode.OVERFLOW:
        return _overflow(inputs, timely, [by_name[name] for name in names])
    if timely:
        return RoutingDecision(Place.REMOTE, timely, "the mode prefers remotes")
    return _fastest(inputs, [by_name[name] for name in names], "no remote would meet the deadline")


def numbers(inputs: RoutingInputs) -> dict[str, float]:
    """Returns the inputs as named numbers for the audit log."""
    values: dict[str, float] = {
        "prompt_tokens": inputs.prompt_tokens,
        "local_waiting": inputs.waiting,
        "constrained": float(inputs.constrained),
        "remotes": len(inputs.remotes),
    }
    if inputs.deadline_in_s is not None:
        values["deadline_in_s"] = inputs.deadline_in_s
    values |= _estimated("local", inputs.local)
    for remote in inputs.remotes:
        name = remote.candidate.name
        values |= _estimated(name, remote.estimate)
        values |= {f"{name}_in_flight": remote.candidate.in_flight, f"{name}_breaker_allows": float(remote.allowed)}
        if remote.candidate.spare is not None:
            values[f"{name}_spare"] = remote.candidate.spare
    return values


def _overflow(inputs: RoutingInputs, timely: tuple[str, ...], usable: list[RemoteInputs]) -> RoutingDecision:
    spare = timely or tuple(remote.candidate.name for remote in usable)
    if inputs.constrained and timely:
        return RoutingDecision(Place.REMOTE, timely, "this box is throttled")
    if _in_time(inputs.local, inputs.deadline_in_s, unknown=inputs.waiting == 0):
        return RoutingDecision(Place.LOCAL, spare, "the local generator will meet the deadline")
    if timely:
        return RoutingDecision(Place.REMOTE, timely, "the local generator would miss the deadline")
    return _fastest(inputs, usable, "every generator would miss the deadline")


def _fastest(inputs: RoutingInputs, usable: list[RemoteInputs], reason: str) -> RoutingDecision:
    ordered = sorted(usable, key=lambda remote: (remote.estimate.finish_s is None, remote.estimate.finish_s or 0.0))
    names = tuple(remote.candidate.name for remote in ordered)
    local_s, remote_s = inputs.local.finish_s, ordered[0].estimate.finish_s
    if local_s is not None and remote_s is not None and remote_s < local_s:
        return RoutingDecision(Place.REMOTE, names, f"{reason}, and a remote finishes first")
    return RoutingDecision(Place.LOCAL, names, f"{reason}, and the local generator finishes first")


def _in_time(estimate: Estimate, deadline_in_s: float | None, unknown: bool) -> bool:
    if deadline_in_s is None:
        return unknown or estimate.finish_s is not None
    return unknown if estimate.finish_s is None else SAFETY * estimate.finish_s <= deadline_in_s


def _estimated(name: str, estimate: Estimate) -> dict[str, float]:
    values = {"first_token_s": estimate.first_token_s, "finish_s": estimate.finish_s}
    return {f"{name}_{key}": value for key, value in values.items() if value is not None}
