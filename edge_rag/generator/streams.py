"""Token sinks of the engine: turn a request's tokens into answer events, or into chunks for another machine.

FreeStream, QuoteStream, ExtractStream, FormattedStream and PlainStream emit the events of an answer (text, citations);
CiteStream is in ``cite_stream``. The chunk streams emit unprocessed output for a
machine that holds the passages and verifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from edge_rag.core.answer import Citation, NumberConflict, TextDelta, Unsupported
from edge_rag.core.generation import (
    ChunkEvent,
    Generated,
    GeneratedChunk,
    GenerationEvent,
    GenerationFailed,
    QuoteChunk,
    TextChunk,
    TokenChunk,
)
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError
from edge_rag.generator.citations.markers import MarkerRemover
from edge_rag.generator.extraction.answer import Extracted
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.quoting.answer import Group, Point, Quote, laid_out

Listener = Callable[[GenerationEvent], None]
"""Receives every event of an answer; must return at once."""

ChunkListener = Callable[[ChunkEvent], None]
"""Receives every chunk; must return at once."""

AnswerPart = TextDelta | Citation | Unsupported

_Part = TypeVar("_Part", AnswerPart, GeneratedChunk)


class Emitter(Generic[_Part]):
    """Passes events to a listener and measures the time to first token."""

    def __init__(
        self, listener: Callable[[_Part | Generated | GenerationFailed], None], clock: Callable[[], float]
    ) -> None:
        self._listener: Callable[[_Part | Generated | GenerationFailed], None] = listener
        self._clock = clock
        self._submitted = clock()
        self._first: float | None = None

    def emit(self, *parts: _Part) -> None:
        for part in parts:
            if self._first is None and not isinstance(part, Citation | Unsupported):
                self._first = self._clock()
            self._listener(part)

    def finish(
        self, outcome: Outcome, prompt_passages: int | None = None, conflicts: Sequence[NumberConflict] = ()
    ) -> None:
        first = None if self._first is None else self._first - self._submitted
        used = outcome.usage, outcome.queue_s, outcome.compute_s
        self._listener(Generated(outcome.reason, *used, first, prompt_passages, tuple(conflicts)))

    def fail(self, error: EdgeRagError) -> None:
        self._listener(GenerationFailed(error))


class StopMatcher:
    """Cuts streamed text at the first stop string; of several that end at the same place, at the longest.

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
            Text that cannot be part of a stop string; nothing after one was found.
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
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def text_parts(text: str) -> tuple[TextDelta, ...]:
    return (TextDelta(text),) if text else ()


class AnswerSink:
    """Base of the sinks: takes nothing and ends the stream.

    Attributes:
        prompt_passages: Passages in the model's prompt; None without a prompt.
    """

    prompt_passages: int | None = None
    conflicts: tuple[NumberConflict, ...] = ()

    def __init__(self, listener: Listener, clock: Callable[[], float]) -> None:
        self._emitter: Emitter[AnswerPart] = Emitter(listener, clock)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Ignores tokens."""
        return False

    def finish(self, outcome: Outcome) -> None:
        self._emitter.finish(outcome, self.prompt_passages, self.conflicts)

    def fail(self, error: EdgeRagError) -> None:
        self._emitter.fail(error)


class TextStream(AnswerSink):
    """Text that the model writes: detokenized, cut at stop strings, and turned into parts of the answer."""

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        detokenizer: Detokenizer,
        stops: Sequence[str],
        parts_of: Callable[[str], Sequence[AnswerPart]],
    ) -> None:
        super().__init__(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._parts_of = parts_of

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True after a stop string."""
        return self.extend_text(self._detokenizer.feed(tokens))

    def extend_text(self, text: str) -> bool:
        self._emitter.emit(*self._parts_of(self._stops.feed(text)))
        return self._stops.stopped

    def set_context(self, tokens: Sequence[int]) -> None:
        """Takes the tokens of the text so far."""
        self._detokenizer.feed(tokens)

    def flush_stops(self) -> None:
        self._emitter.emit(*self._parts_of(self._stops.flush()))


class FreeStream(TextStream):
    """Unchecked text: detokenized, cut at stop strings, without citations and without ``[n]`` markers."""

    def __init__(
        self, listener: Listener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        markers = MarkerRemover()
        super().__init__(listener, clock, detokenizer, stops, lambda text: text_parts(markers.feed(text)))
        self._markers = markers

    def finish(self, outcome: Outcome) -> None:
        self.flush_stops()
        self._emitter.emit(*text_parts(self._markers.flush()))
        super().finish(outcome)


class PlainStream(TextStream):
    """Text as the model writes it: detokenized, cut at stop strings."""

    def __init__(
        self, listener: Listener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        super().__init__(listener, clock, detokenizer, stops, text_parts)

    def finish(self, outcome: Outcome) -> None:
        self.flush_stops()
        super().finish(outcome)


class FormattedStream(AnswerSink):
    """Formatted text: every character of the tokens, without citations."""

    def __init__(self, listener: Listener, clock: Callable[[], float], detokenizer: Detokenizer) -> None:
        super().__init__(listener, clock)
        self._detokenizer = detokenizer

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; always False, since the format ends the answer."""
        if text := self._detokenizer.feed(tokens):
            self._emitter.emit(TextDelta(text))
        return False


class NotFoundStream(AnswerSink):
    """The not-found answer; the engine generates nothing for it.

    Args:
        text: The answer; may be empty.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float], text: str) -> None:
        super().__init__(listener, clock)
        self._text = text

    def finish(self, outcome: Outcome) -> None:
        if self._text:
            self._emitter.emit(TextDelta(self._text))
        super().finish(outcome)


class QuoteStream(AnswerSink):
    """Quoted points, each quote with its citation; the engine generates nothing.

    Args:
        groups: The points, at least one.
    """

    def __init__(
        self, listener: Listener, clock: Callable[[], float], groups: Sequence[Group], passages: Sequence[Passage]
    ) -> None:
        super().__init__(listener, clock)
        self._groups = groups
        self._passages = passages

    def finish(self, outcome: Outcome) -> None:
        """Emits the points one by one, and ends."""
        end, between = 0, ""
        for piece in laid_out(self._groups):
            if isinstance(piece, str):
                between += piece
                continue
            start = end + len(between)
            end = start + len(piece.text)
            self._emitter.emit(TextDelta(between + piece.text), self._citation(piece, start, end))
            between = ""
        if between:
            self._emitter.emit(TextDelta(between))
        super().finish(outcome)

    def _citation(self, quote: Quote, start: int, end: int) -> Citation:
        passage = self._passages[quote.passage]
        section = passage.context
        if quote.context and quote.text in section:  # a heading is not above itself
            section = section[: section.index(quote.text)]
        around = passage.surroundings
        pages = [each.page for each in around.chunks if each.start <= quote.start] if around is not None else []
        return Citation(
            passage=quote.passage,
            document=passage.document,
            page=pages[-1] if pages else passage.page,
            start=quote.start,
            end=quote.end,
            text=quote.text,
            answer_start=start,
            answer_end=end,
            section=section,
            context=quote.context,
        )


class ExtractStream(AnswerSink):
    """Extracted values, each with the sentence that holds it as its citation; the engine generates nothing."""

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        extracted: Extracted,
        passages: Sequence[RankedPassage],
    ) -> None:
        super().__init__(listener, clock)
        self._extracted = extracted
        self._passages = passages

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Ignores tokens."""
        return False

    def finish(self, outcome: Outcome) -> None:
        """Emits the answer as a whole, then its citations, and ends."""
        self._emitter.emit(TextDelta(self._extracted.text))
        for value in self._extracted.values:
            ranked = self._passages[value.passage]
            source = ranked.sentences[value.sentence]
            span = source.start, source.end, value.start, value.end
            self._emitter.emit(replace(citation_of(value.passage, ranked.passage, *span), field=value.pointer))
        super().finish(outcome)


def citation_of(index: int, passage: Passage, start: int, end: int, answer_start: int, answer_end: int) -> Citation:
    """Returns a citation of a range of a passage for a range of the answer, characters."""
    return Citation(
        passage=index,
        document=passage.document,
        page=passage.page,
        start=passage.start + start,
        end=passage.start + end,
        text=passage.text[start:end],
        answer_start=answer_start,
        answer_end=answer_end,
        section=passage.context,
    )


class ChunkSink:
    """Base of the chunk sinks: ends the stream."""

    def __init__(self, listener: ChunkListener, clock: Callable[[], float]) -> None:
        self._emitter: Emitter[GeneratedChunk] = Emitter(listener, clock)

    def finish(self, outcome: Outcome) -> None:
        self._emitter.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        self._emitter.fail(error)


class TextChunkStream(ChunkSink):
    """Free text, up to a stop string."""

    def __init__(
        self, listener: ChunkListener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        super().__init__(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True after a stop string."""
        self._emit(self._stops.feed(self._detokenizer.feed(tokens)))
        return self._stops.stopped

    def finish(self, outcome: Outcome) -> None:
        self._emit(self._stops.flush())
        super().finish(outcome)

    def _emit(self, text: str) -> None:
        if text:
            self._emitter.emit(TextChunk(text))


class TokenChunkStream(ChunkSink):
    """Tokens, up to the one that completes a stop string; arguments as of ``TextChunkStream``."""

    def __init__(
        self, listener: ChunkListener, clock: Callable[[], float], detokenizer: Detokenizer, stops: Sequence[str]
    ) -> None:
        super().__init__(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True after a stop string."""
        self._emitter.emit(TokenChunk(tokens))
        self._stops.feed(self._detokenizer.feed(tokens))
        return self._stops.stopped


class QuoteChunkStream(ChunkSink):
    """Quoted sentences, by position; only the chosen sentence of each point."""

    def __init__(self, listener: ChunkListener, clock: Callable[[], float], points: Sequence[Point]) -> None:
        super().__init__(listener, clock)
        self._points = points

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Ignores tokens."""
        return False

    def finish(self, outcome: Outcome) -> None:
        self._emitter.emit(*[QuoteChunk(point.quote.passage, point.sentence) for point in self._points])
        super().finish(outcome)
