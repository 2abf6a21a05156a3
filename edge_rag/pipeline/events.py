"""Audit events of the stages before the generator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Query
from edge_rag.errors import DeadlineExceeded, EdgeRagError, Overloaded, error_class
from edge_rag.pipeline.stage import Timed


class StageEventRecorder:
    """Records one audit event for each stage that a question passes, or that ends it.

    Args:
        audit: Receives the events.
        clock: Monotonic seconds.
    """

    def __init__(self, audit: AuditSink, clock: Callable[[], float]) -> None:
        self._audit = audit
        self._clock = clock

    def completed(self, query: Query, stage: str, timed: Timed[Any]) -> None:
        """Records that a stage has completed a question."""
        numbers = {"queue_s": timed.queue_s, "compute_s": timed.compute_s}
        self._record(AuditEventKind.STAGE_DONE, query, f"the {stage} is done", numbers)

    @contextmanager
    def failures(self, query: Query, stage: str) -> Iterator[None]:
        """Records the error or cancellation with which the block ends a question, if any."""
        try:
            yield
        except Overloaded as error:
            reason = f"the {stage}'s queue is full"
            self._record(AuditEventKind.REFUSED, query, reason, {"retry_after_s": error.retry_after_s})
            raise
        except DeadlineExceeded:
            self._record(AuditEventKind.EXPIRED, query, f"its deadline passed in the {stage}", {})
            raise
        except EdgeRagError as error:
            self._record(AuditEventKind.FAILED, query, f"it failed in the {stage}: {error_class(error)}", {})
            raise
        except asyncio.CancelledError:
            self._record(AuditEventKind.CANCELLED, query, f"the caller cancelled it in the {stage}", {})
            raise

    def _record(self, kind: AuditEventKind, query: Query, reason: str, numbers: Mapping[str, float]) -> None:
        self._audit.record(
            AuditEvent(kind, query.request_id, query.client, query.priority, reason, numbers, self._clock())
        )
