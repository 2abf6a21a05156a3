"""A request's tokens on their way to its listener: text, citations, and the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_rag.core.answer import Citation, TextDelta
from edge_rag.core.passage import Passage
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError
from edge_rag.generator.citations.markers import CitationMapper
from edge_rag.generator.constraints.quote import Quotation
from edge_rag.generator.prompt.detokenizer import Detokenizer
from edge_rag.generator.streams.stop import StopMatcher
from edge_rag.generator.streams.teller import Listener, Teller


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
        self._teller = Teller(listener, clock)
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
        self._teller = Teller(listener, clock)
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
        self._teller = Teller(listener, clock)
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
        self._teller = Teller(listener, clock)
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
