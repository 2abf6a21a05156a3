"""What happened to a question before the generator, put into words and numbers for the trail of decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Query
from edge_rag.errors import DeadlineExceeded, EdgeRagError, Overloaded, class_of
from edge_rag.pipeline.stage import Timed


class StageEventRecorder:
    """Makes decisions of what the stages before the generator do and hands them on.

    Args:
        sink: Where they go.
        clock: Monotonic seconds.
    """

    def __init__(self, sink: AuditSink, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._clock = clock

    def done(self, query: Query, stage: str, timed: Timed[Any]) -> None:
        """A stage is done with a question."""
        numbers = {"queue_s": timed.queue_s, "compute_s": timed.compute_s}
        self._say(AuditEventKind.STAGE_DONE, query, f"the {stage} is done", numbers)

    @contextmanager
    def within(self, query: Query, stage: str) -> Iterator[None]:
        """Tells how a question ended that does not get past a stage."""
        try:
            yield
        except Overloaded as error:
            reason = f"the {stage}'s queue is full"
            self._say(AuditEventKind.REFUSED, query, reason, {"retry_after_s": error.retry_after_s})
            raise
        except DeadlineExceeded:
            self._say(AuditEventKind.EXPIRED, query, f"its deadline passed in the {stage}", {})
            raise
        except EdgeRagError as error:
            self._say(AuditEventKind.FAILED, query, f"it failed in the {stage}: {class_of(error)}", {})
            raise
        except asyncio.CancelledError:
            self._say(AuditEventKind.CANCELLED, query, f"the caller gave it up in the {stage}", {})
            raise

    def _say(self, kind: AuditEventKind, query: Query, reason: str, numbers: Mapping[str, float]) -> None:
        self._sink.record(
            AuditEvent(kind, query.request_id, query.client, query.priority, reason, numbers, self._clock())
        )
