"""A request's tokens on their way to its listener: text, citations, and the end.

Tells a listener about its answer, and when the first text came.

Stop strings in a stream: what could be the beginning of one is held back until it is clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from edge_rag.core.answer import Citation, TextDelta, Unsupported
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed
from edge_rag.core.passage import Passage
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError
from edge_rag.generator.citations.markers import CitationMapper
from edge_rag.generator.constraints.quote import Quotation
from edge_rag.generator.prompt.tokenizer import Detokenizer

Listener = Callable[[GenerationEvent], None]
"""Hears every event of an answer."""

AnswerPart = TextDelta | Citation | Unsupported


class Emitter:
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


class StopMatcher:
    """Finds the stop string that is complete first in text that comes in pieces; of several at once, the longest.

    Args:
        stops: The strings; empty ones are ignored.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Takes the next piece.

        Returns:
            Text that certainly stands before any stop string; nothing once one was found.
        """
        if self.stopped:
            return ""
        text = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Returns what was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text that begins the stop string."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class FreeStream:
    """Free text: detokenized, cut at stop strings, markers turned into citations. A ``TokenSink``.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
        detokenizer: Decodes this answer.
        stops: Strings that end it.
        citations: Finds its citations.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        detokenizer: Detokenizer,
        stops: Sequence[str],
        citations: CitationMapper,
    ) -> None:
        self._teller = Emitter(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._citations = citations

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True once a stop string appeared."""
        return self.hear(self._detokenizer.feed(tokens))

    def hear(self, text: str) -> bool:
        """Takes text; True once a stop string appeared."""
        self._tell(self._citations.feed(self._stops.feed(text)))
        return self._stops.stopped

    def remember(self, tokens: Sequence[int]) -> None:
        """Takes the tokens of the text heard so far."""
        self._detokenizer.feed(tokens)

    def finish(self, outcome: Outcome) -> None:
        """Lets go of what was held back, and ends."""
        self._tell(self._citations.feed(self._stops.flush()))
        self._tell(self._citations.flush())
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)

    def _tell(self, events: Sequence[TextDelta | Citation]) -> None:
        for event in events:
            self._teller.tell(event)


class FormattedStream:
    """Text in a format of its own: every character the tokens stand for, no citations. A ``TokenSink``.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
        detokenizer: Decodes this answer.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float], detokenizer: Detokenizer) -> None:
        self._teller = Emitter(listener, clock)
        self._detokenizer = detokenizer

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens and tells their text."""
        if text := self._detokenizer.feed(tokens):
            self._teller.tell(TextDelta(text))
        return False

    def finish(self, outcome: Outcome) -> None:
        """Ends well."""
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)


class QuoteStream:
    """Quoted sentences: the stored text itself, a space between them, each with its citation. A ``TokenSink``.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
        quotation: The same constraint that the request carries.
        passages: The passages that its candidates name.
    """

    def __init__(
        self, listener: Listener, clock: Callable[[], float], quotation: Quotation, passages: Sequence[Passage]
    ) -> None:
        self._teller = Emitter(listener, clock)
        self._quotation = quotation
        self._passages = passages
        self._length = 0

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens and tells the sentences that they complete."""
        before = len(self._quotation.quoted)
        self._quotation = self._quotation.after(tokens)
        for said in self._quotation.quoted[before:]:
            text = f" {said.text}" if self._length else said.text
            self._teller.tell(TextDelta(text))
            self._length += len(text)
            passage = self._passages[said.passage]
            self._teller.tell(
                Citation(
                    passage=said.passage,
                    document=passage.document,
                    page=passage.page,
                    start=passage.start + said.start,
                    end=passage.start + said.end,
                    text=said.text,
                    answer_start=self._length - len(said.text),
                    answer_end=self._length,
                )
            )
        return False

    def finish(self, outcome: Outcome) -> None:
        """Ends well."""
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)


class FixedStream:
    """An answer known beforehand. A ``TokenSink``.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
        text: The answer; may be empty.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float], text: str) -> None:
        self._teller = Emitter(listener, clock)
        self._text = text

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; none of them is part of the answer."""
        return False

    def finish(self, outcome: Outcome) -> None:
        """Tells the answer, and ends."""
        if self._text:
            self._teller.tell(TextDelta(self._text))
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)
