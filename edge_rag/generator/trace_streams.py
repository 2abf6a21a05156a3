"""Token sinks for models that write a trace: its answer, which its verified quotes support in mode CITE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from edge_rag.core.answer import FinishReason, TextDelta, Unsupported
from edge_rag.core.generation import TextChunk
from edge_rag.engine.ports import Outcome
from edge_rag.generator.citations.attribution import Attributor, Support
from edge_rag.generator.citations.markers import MarkerRemover
from edge_rag.generator.citations.trace import TraceReader
from edge_rag.generator.prompt.profiles import SOURCE_ID, TraceSection
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.streams import (
    AnswerPart,
    AnswerSink,
    ChunkListener,
    ChunkSink,
    Listener,
    StopMatcher,
    citation_of,
    text_parts,
)

_OPENING: Final = {section.start: section for section in TraceSection}
_CLOSING: Final = {section.end: section for section in TraceSection}


class TraceTokens:
    """Reads a trace token by token.

    Args:
        reader: Reads the text between special tokens.
        special_id: Returns the id of a special token, or None.
        max_tokens: Most tokens of the answer, without the sections before it.
    """

    def __init__(
        self,
        reader: TraceReader,
        special_id: Callable[[str], int | None],
        detokenizer: Detokenizer,
        stops: Sequence[str],
        max_tokens: int,
    ) -> None:
        self.reader = reader
        self._names = {special_id(name): name for name in (*_OPENING, *_CLOSING, SOURCE_ID)}
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._left = max_tokens
        self.cut = False

    @property
    def over(self) -> bool:
        return self.reader.ended or self._stops.stopped or self.cut

    def feed(self, tokens: Sequence[int]) -> str:
        """Takes tokens; returns the text of the answer that they complete."""
        shown = ""
        for token in tokens:
            if self.over:
                break
            shown += self._take(token)
        return shown

    def flush(self) -> str:
        rest = self._stops.feed(self.reader.flush())
        return rest + self._stops.flush()

    def _take(self, token: int) -> str:
        name = self._names.get(token)
        if name is None:
            answering = self.reader.answering
            shown = self._stops.feed(self.reader.feed(self._detokenizer.feed((token,))))
            self._left -= answering
            self.cut = answering and self._left <= 0
            return shown
        if name in _OPENING:
            return self._stops.feed(self.reader.open(_OPENING[name]))
        if name in _CLOSING:
            return self._stops.feed(self.reader.close(_CLOSING[name]))
        self.reader.source()
        return ""


class TraceStream(AnswerSink):
    """The answer of a trace, cited by its quotes in mode CITE.

    Args:
        clock: Monotonic seconds.
        not_found: The answer if the trace has none, or one that nothing supports in mode CITE.
        check: Finds support for the answer in mode CITE, which is emitted as a whole then. The answer must be in the
            passages that the trace quotes, which is why the question does not matter to it. None in mode FREE: there,
            the answer has no citations, since nothing tells that the quotes support it.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        trace: TraceTokens,
        not_found: str,
        check: Attributor | None,
    ) -> None:
        super().__init__(listener, clock)
        self._trace = trace
        self._not_found = not_found
        self._check = check
        self._markers = MarkerRemover()
        self._text = ""

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True at the end of the answer."""
        self._show(self._trace.feed(tokens))
        return self._trace.over

    def finish(self, outcome: Outcome) -> None:
        """Emits the rest and the citations, and ends; with the not-found answer if there is no answer."""
        self._show(self._trace.flush())
        if self._check is None:
            self._emitter.emit(*text_parts(self._markers.flush()))
        parts = [] if self._check is None else self._checked(self._check)
        if not self._text or (self._check is not None and not parts):
            parts = [TextDelta(self._not_found)]
            outcome = replace(outcome, reason=FinishReason.NOT_FOUND)
        elif self._trace.cut:
            outcome = replace(outcome, reason=FinishReason.LENGTH)
        self._emitter.emit(*parts)
        super().finish(outcome)

    def _show(self, text: str) -> None:
        self._text += text
        if self._check is None:
            self._emitter.emit(*text_parts(self._markers.feed(text)))

    def _checked(self, check: Attributor) -> list[AnswerPart]:
        quotes, end = self._trace.reader.quotes, len(self._text)
        if not self._text or not quotes:
            return []
        quoted = {quote.passage for quote in quotes}
        support = check.support(self._text, quoted)
        if not any(place.passage in quoted for place in support):
            return [TextDelta(self._text), Unsupported(0, end)]
        beyond = [place for place in support if not any(_overlap(place, quote) for quote in quotes)]
        return [TextDelta(self._text), *self._citations([*quotes, *beyond], end)]

    def _citations(self, places: Sequence[Support], end: int) -> list[AnswerPart]:
        passages = self._trace.reader.passages
        return [citation_of(place.passage, passages[place.passage], place.start, place.end, 0, end) for place in places]


class TraceChunkStream(ChunkSink):
    """The answer of a trace as text with ``[n]`` markers of the passages that it quotes, for another machine.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, listener: ChunkListener, clock: Callable[[], float], trace: TraceTokens) -> None:
        super().__init__(listener, clock)
        self._trace = trace

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True at the end of the answer."""
        if text := self._trace.feed(tokens):
            self._emitter.emit(TextChunk(text))
        return self._trace.over

    def finish(self, outcome: Outcome) -> None:
        """Emits the rest and the markers, or the refusal if there is no answer, and ends."""
        rest, reader = self._trace.flush(), self._trace.reader
        numbers = {index: number for number, index in enumerate(reader.numbering, 1)}
        markers = "".join(f" [{numbers[passage]}]" for passage in dict.fromkeys(q.passage for q in reader.quotes))
        text = rest + markers if reader.answered else reader.format.refusal
        if text:
            self._emitter.emit(TextChunk(text))
        super().finish(outcome)


def _overlap(one: Support, other: Support) -> bool:
    return one.passage == other.passage and one.start < other.end and other.start < one.end
