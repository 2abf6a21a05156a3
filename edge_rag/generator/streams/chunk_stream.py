"""Tokens on their way to somebody who holds the passages and goes by what was said, not by answer events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edge_rag.core.generation import ChunkEvent, Generated, GenerationFailed, QuoteChunk, TextChunk, TokenChunk
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError
from edge_rag.generator.constraints.quote import Quotation
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.streams.answer_stream import StopMatcher

SaidListener = Callable[[ChunkEvent], None]
"""Hears all that is said; must return at once."""


class _SaidTeller:
    """Tells the listener, and when the first of it came."""

    def __init__(self, listener: SaidListener, clock: Callable[[], float]) -> None:
        self._listener = listener
        self._clock = clock
        self._submitted = clock()
        self._first: float | None = None

    def tell(self, said: TextChunk | TokenChunk | QuoteChunk) -> None:
        """Passes on what was said."""
        if self._first is None:
            self._first = self._clock()
        self._listener(said)

    def finish(self, outcome: Outcome) -> None:
        """Ends well."""
        first = None if self._first is None else self._first - self._submitted
        self._listener(Generated(outcome.reason, outcome.usage, outcome.queue_s, outcome.compute_s, first))

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._listener(GenerationFailed(error))


class SaidTextStream:
    """Free text as it is written, up to a stop string. A ``TokenSink``.

    Args:
        listener: Hears it.
        clock: Monotonic seconds.
        detokenizer: Decodes this answer.
        stops: Strings that end it.
    """

    def __init__(
        self, listener: SaidListener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        self._teller = _SaidTeller(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True once a stop string appeared."""
        self._tell(self._stops.feed(self._detokenizer.feed(tokens)))
        return self._stops.stopped

    def finish(self, outcome: Outcome) -> None:
        """Lets go of what was held back, and ends."""
        self._tell(self._stops.flush())
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)

    def _tell(self, text: str) -> None:
        if text:
            self._teller.tell(TextChunk(text))


class SaidTokenStream:
    """The tokens themselves, up to the one that completes a stop string. A ``TokenSink``; arguments as above."""

    def __init__(
        self, listener: SaidListener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        self._teller = _SaidTeller(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True once a stop string appeared."""
        self._teller.tell(TokenChunk(tokens))
        self._stops.feed(self._detokenizer.feed(tokens))
        return self._stops.stopped

    def finish(self, outcome: Outcome) -> None:
        """Ends well."""
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)


class SaidSentenceStream:
    """Quoted sentences by their places. A ``TokenSink``.

    Args:
        listener: Hears them.
        clock: Monotonic seconds.
        quotation: The same constraint that the request carries.
        places: Position of a sentence in its passage, by passage and first character.
    """

    def __init__(
        self,
        listener: SaidListener,
        clock: Callable[[], float],
        quotation: Quotation,
        places: Mapping[tuple[int, int], int],
    ) -> None:
        self._teller = _SaidTeller(listener, clock)
        self._quotation = quotation
        self._places = places

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens and tells the sentences that they complete."""
        before = len(self._quotation.quoted)
        self._quotation = self._quotation.after(tokens)
        for said in self._quotation.quoted[before:]:
            self._teller.tell(QuoteChunk(said.passage, self._places[said.passage, said.start]))
        return False

    def finish(self, outcome: Outcome) -> None:
        """Ends well."""
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)
