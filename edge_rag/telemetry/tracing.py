"""Traces of calls: one span a call, one a stage in it. This is the interface, and what there is where nobody traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Note = str | float | int


def times(queue_s: float, compute_s: float) -> dict[str, Note]:
    """Returns what every stage's span has: seconds it waited, and seconds it took."""
    return {"edge_rag.queue_seconds": queue_s, "edge_rag.compute_seconds": compute_s}


class StageTrace(Protocol):
    """The span of a stage."""

    def note(self, facts: Mapping[str, Note]) -> None:
        """Adds attributes; never anything of a question or a document."""
        ...


class CallTrace(Protocol):
    """The span of a call."""

    def stage(self, name: str) -> AbstractContextManager[StageTrace]:
        """Makes the span of a stage, which ends with the block; what the block raises leaves its class in it."""
        ...

    def end(self, request_id: str, outcome: str) -> None:
        """Ends the span.

        Args:
            request_id: Id of the call.
            outcome: Name of its gRPC status.
        """
        ...


class Traces(Protocol):
    """Begins traces."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        """Begins the span of a call.

        Args:
            method: Name of the RPC.
            metadata: What the client sent along; ``traceparent`` and ``tracestate`` are honoured (W3C Trace Context).
        """
        ...

    def close(self) -> None:
        """Sends what has not been sent; waits a few seconds at most."""
        ...


class Untraced:
    """Begins, notes and sends nothing."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        """Returns what notes nothing."""
        return self

    @contextmanager
    def stage(self, name: str) -> Iterator[StageTrace]:
        """Does nothing."""
        yield self

    def note(self, facts: Mapping[str, Note]) -> None:
        """Does nothing."""

    def end(self, request_id: str, outcome: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


UNTRACED = Untraced()
