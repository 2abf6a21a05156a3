"""The engine's decisions, put into words and numbers for the trail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from edge_rag.core.answer import FinishReason
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.engine.prefetch import PrefetchRequest
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.scheduling.plan import SchedulingEvent
from edge_rag.engine.scheduling.slot_controller import SlotChange
from edge_rag.engine.sequence import SequenceId
from edge_rag.errors import (
    DeadlineExceeded,
    EdgeRagError,
    InvalidRequest,
    MemoryPressure,
    NotReady,
    Overloaded,
    RequestCancelled,
    RequestTooLarge,
    SlowConsumer,
    class_of,
)

_FINISHED: Final = {
    FinishReason.STOP: "the answer was complete",
    FinishReason.LENGTH: "the longest answer allowed was reached",
    FinishReason.NOT_FOUND: "there was no evidence to answer from",
}


class EventRecorder:
    """Makes decisions of what the engine does and hands them on.

    Args:
        sink: Where they go.
    """

    def __init__(self, sink: AuditSink) -> None:
        self._sink = sink

    def queued(self, request: TokenRequest, numbers: Mapping[str, float], now: float) -> None:
        """A request was taken in."""
        of_request: dict[str, float] = {"prompt_tokens": len(request.prompt), "max_tokens": request.sampling.max_tokens}
        if request.deadline is not None:
            of_request["deadline_in_s"] = request.deadline - now
        self._record(AuditEventKind.QUEUED, request, "waits for a slot", {**of_request, **numbers}, now)

    def refused(self, request: TokenRequest, error: EdgeRagError, queue: Mapping[str, float], now: float) -> None:
        """A request was not taken in.

        Args:
            request: What was asked.
            error: What the caller is told.
            queue: How full the queue is.
            now: Seconds.
        """
        reason, numbers = "it was not acceptable", dict[str, float]()
        match error:
            case RequestTooLarge():
                reason = "it is larger than the cache or the model's context"
                numbers = {"needed_tokens": error.needed, "capacity_tokens": error.available}
            case MemoryPressure():
                reason, numbers = "memory is short", {**queue, "retry_after_s": error.retry_after_s}
            case Overloaded():
                reason = "the queue is full"
                numbers = {**queue, "retry_after_s": error.retry_after_s}
            case DeadlineExceeded():
                reason = "its deadline had passed"
                numbers = {} if request.deadline is None else {"late_s": now - request.deadline}
            case NotReady():
                reason = "the engine is shutting down"
            case InvalidRequest(field=field):
                reason = f"its field {field} is unusable"
        prompt = {"prompt_tokens": float(len(request.prompt))} if request.prompt else {}
        self._record(AuditEventKind.REFUSED, request, reason, {**prompt, **numbers}, now)

    def planned(self, events: Iterable[SchedulingEvent], live: Mapping[SequenceId, ActiveRequest], now: float) -> None:
        """The scheduler decided about requests.

        Args:
            verdicts: What it decided; also about passages computed alone, which nobody asked for.
            live: Requests by sequence.
            now: Seconds.
        """
        for event in events:
            if event.sequence not in live:
                continue
            other = None if event.preempted_for is None else live.get(event.preempted_for)
            request = live[event.sequence].request
            favoured = None if other is None else other.request
            self._record(event.kind, request, event.reason, event.numbers, now, preempted_for=favoured)

    def paused(self, request: ActiveRequest, numbers: Mapping[str, float], now: float) -> None:
        """A request waits for its reader."""
        of_request = {"generated_tokens": request.sequence.generated, **numbers}
        self._record(AuditEventKind.PAUSED, request.request, "its reader does not keep up", of_request, now)

    def finished(self, request: ActiveRequest, reason: FinishReason, now: float) -> None:
        """A request ended well."""
        said = _FINISHED.get(reason, reason.value)
        self._record(AuditEventKind.FINISHED, request.request, said, _summary(request, now), now)

    def given_up(self, request: ActiveRequest, error: EdgeRagError, now: float) -> None:
        """A request ended badly."""
        match error:
            case RequestCancelled():
                kind, reason = AuditEventKind.CANCELLED, "the caller gave it up"
            case DeadlineExceeded():
                kind, reason = AuditEventKind.EXPIRED, "its deadline passed"
            case SlowConsumer():
                kind, reason = AuditEventKind.EXPIRED, "what it said was not read"
            case _:
                kind, reason = AuditEventKind.FAILED, f"it failed: {class_of(error)}"
        self._record(kind, request.request, reason, _summary(request, now), now)

    def prefetched(self, expected: PrefetchRequest, now: float) -> None:
        """The likely prompt of a request was computed ahead, as far as there was time."""
        numbers = {"computed_tokens": expected.computed_ahead, "expected_tokens": len(expected.sequence.tokens)}
        said = "its likely prompt was computed while nothing else was to do"
        self._record(AuditEventKind.PREFETCHED, expected.request, said, numbers, now)

    def resized(self, change: SlotChange, now: float) -> None:
        """The number of slots changed."""
        numbers = {
            "slots": change.slots,
            "slots_before": change.before,
            "measured_step_s": change.measured_s,
            "target_step_s": change.target_s,
        }
        self._sink.record(AuditEvent(AuditEventKind.SLOTS_CHANGED, None, "", None, change.reason, numbers, now))

    def _record(
        self,
        kind: AuditEventKind,
        request: TokenRequest,
        reason: str,
        numbers: Mapping[str, float],
        now: float,
        preempted_for: TokenRequest | None = None,
    ) -> None:
        other = None if preempted_for is None else preempted_for.request_id
        self._sink.record(
            AuditEvent(kind, request.request_id, request.client, request.priority, reason, numbers, now, other)
        )


def _summary(request: ActiveRequest, now: float) -> dict[str, float]:
    """Returns what a request got, at its end."""
    sequence = request.sequence
    started = now if request.started is None else request.started
    return {
        "prompt_tokens": sequence.prompt_tokens,
        "cached_tokens": sequence.cached_tokens,
        "copied_tokens": sequence.copied_tokens,
        "generated_tokens": sequence.generated,
        "model_steps": sequence.steps,
        "preemptions": sequence.preemptions,
        "queue_s": started - request.submitted,
        "compute_s": now - started,
    }
