"""Tells a listener about its answer, and when the first text came."""

from __future__ import annotations

from collections.abc import Callable

from edge_rag.core.answer import Citation, TextDelta, Unsupported
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError

Listener = Callable[[GenerationEvent], None]
"""Hears every event of an answer."""

AnswerPart = TextDelta | Citation | Unsupported


class Teller:
    """Tells the listener, and when the first text came.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float]) -> None:
        self._listener = listener
        self._clock = clock
        self._submitted = clock()
        self._first_text: float | None = None

    def tell(self, event: AnswerPart) -> None:
        """Passes an event on."""
        if self._first_text is None and isinstance(event, TextDelta):
            self._first_text = self._clock()
        self._listener(event)

    def finish(self, outcome: Outcome) -> None:
        """Ends the stream well."""
        first = None if self._first_text is None else self._first_text - self._submitted
        self._listener(Generated(outcome.reason, outcome.usage, outcome.queue_s, outcome.compute_s, first))

    def fail(self, error: EdgeRagError) -> None:
        """Ends the stream badly."""
        self._listener(GenerationFailed(error))
