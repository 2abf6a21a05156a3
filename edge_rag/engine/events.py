"""Records what happens in the engine: audit events, counters, and the observer's reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from edge_rag.core.answer import FinishReason
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import StepReport
from edge_rag.core.ports import AuditSink
from edge_rag.engine.ports import StepObserver
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.scheduling.plan import StepPlan
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
    error_class,
)

_FINISHED: Final = {
    FinishReason.STOP: "the answer was complete",
    FinishReason.LENGTH: "the longest answer allowed was reached",
    FinishReason.NOT_FOUND: "there was no evidence to answer from",
}


class EventRecorder:
    """The engine's one place for audit, counting and observation."""

    def __init__(self, audit: AuditSink, observer: StepObserver) -> None:
        self._audit = audit
        self._observer = observer
        self.counters = Counter[str]()

    def queued(self, request: TokenRequest, usage: Mapping[str, float], now: float) -> None:
        numbers: dict[str, float] = {"prompt_tokens": len(request.prompt), "max_tokens": request.sampling.max_tokens}
        if request.deadline is not None:
            numbers["deadline_in_s"] = request.deadline - now
        self._record(AuditEventKind.QUEUED, request, "waits for a slot", {**numbers, **usage}, now)

    def refused(self, request: TokenRequest, error: EdgeRagError, usage: Mapping[str, float], now: float) -> None:
        """Records that a request was refused with an error; ``usage`` is that of the queue."""
        reason, numbers = "it was not acceptable", dict[str, float]()
        match error:
            case RequestTooLarge():
                reason = "it is larger than the cache or the model's context"
                numbers = {"needed_tokens": error.needed, "capacity_tokens": error.available}
            case MemoryPressure():
                reason, numbers = "memory is short", {**usage, "retry_after_s": error.retry_after_s}
            case Overloaded():
                reason = "the queue is full"
                numbers = {**usage, "retry_after_s": error.retry_after_s}
            case DeadlineExceeded():
                reason = "its deadline had passed"
                numbers = {} if request.deadline is None else {"late_s": now - request.deadline}
            case NotReady():
                reason = "the engine is shutting down"
            case InvalidRequest(field=field):
                reason = f"its field {field} is unusable"
        prompt = {"prompt_tokens": float(len(request.prompt))} if request.prompt else {}
        self._record(AuditEventKind.REFUSED, request, reason, {**prompt, **numbers}, now)

    def scheduled(self, plan: StepPlan, active: Mapping[SequenceId, ActiveRequest], now: float) -> None:
        """Records the scheduler's events about requests; those about passage warm-ups concern no request."""
        self.counters["preemptions"] += len(plan.preempted)
        for event in plan.events:
            if event.sequence not in active:
                continue
            other = None if event.preempted_for is None else active.get(event.preempted_for)
            preempted_for = None if other is None else other.request
            self._record(event.kind, active[event.sequence].request, event.reason, event.numbers, now, preempted_for)

    def paused(self, request: ActiveRequest, numbers: Mapping[str, float], now: float) -> None:
        numbers = {"generated_tokens": request.sequence.generated, **numbers}
        self._record(AuditEventKind.PAUSED, request.request, "the client does not keep up", numbers, now)

    def finished(self, request: ActiveRequest, reason: FinishReason, now: float) -> None:
        self.counters["completed"] += 1
        text = _FINISHED.get(reason, reason.value)
        self._record(AuditEventKind.FINISHED, request.request, text, _summary(request, now), now)

    def failed(self, request: ActiveRequest, error: EdgeRagError, now: float) -> None:
        """Records that a request ended with an error."""
        self.counters["failed"] += 1
        match error:
            case RequestCancelled():
                kind, reason = AuditEventKind.CANCELLED, "the caller cancelled it"
            case DeadlineExceeded():
                kind, reason = AuditEventKind.EXPIRED, "its deadline passed"
            case SlowConsumer():
                kind, reason = AuditEventKind.EXPIRED, "the client did not read the answer in time"
            case _:
                kind, reason = AuditEventKind.FAILED, f"it failed: {error_class(error)}"
        self._record(kind, request.request, reason, _summary(request, now), now)

    def over(self, request: ActiveRequest, now: float, completed: bool) -> None:
        self._observer.on_request(request.report(now, completed))

    def step(self, report: StepReport) -> None:
        counters = self.counters
        counters["steps"] += 1
        counters["decode_tokens"] += report.decodes
        counters["prefill_tokens"] += report.tokens - report.decodes - report.drafted
        self._observer.on_step(report)

    def snapshot_counters(self) -> dict[str, Any]:
        return dict(self.counters)

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
        self._audit.record(
            AuditEvent(kind, request.request_id, request.client, request.priority, reason, numbers, now, other)
        )


def _summary(request: ActiveRequest, now: float) -> dict[str, float]:
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
