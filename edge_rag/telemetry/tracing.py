"""The interface of traces, one span per call and one per stage, and its implementation without tracing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

AttributeValue = str | float | int


def times(queue_s: float, compute_s: float) -> dict[str, AttributeValue]:
    """Returns the attributes of every stage's span: waiting and processing time, seconds."""
    return {"edge_rag.queue_seconds": queue_s, "edge_rag.compute_seconds": compute_s}


class StageTrace(Protocol):
    """The span of a stage."""

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Adds attributes; they must not contain text of questions or documents."""
        ...


class CallTrace(Protocol):
    """The span of a call."""

    def stage(self, name: str) -> AbstractContextManager[StageTrace]:
        """Returns the span of a stage, which ends with the block; an exception of the block is recorded by its
        class.
        """
        ...

    def end(self, request_id: str, outcome: str) -> None:
        """Ends the span.

        Args:
            request_id: Id of the request.
            outcome: Name of the gRPC status.
        """
        ...


class Traces(Protocol):
    """Starts traces."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        """Starts the span of a call.

        Args:
            method: Name of the RPC.
            metadata: Metadata of the call; ``traceparent`` and ``tracestate`` are used (W3C Trace Context).
        """
        ...

    def close(self) -> None:
        """Sends the remaining spans; waits a few seconds at most."""
        ...


class Untraced:
    """Discards all traces."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        return self

    @contextmanager
    def stage(self, name: str) -> Iterator[StageTrace]:
        yield self

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Does nothing."""

    def end(self, request_id: str, outcome: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


UNTRACED = Untraced()
