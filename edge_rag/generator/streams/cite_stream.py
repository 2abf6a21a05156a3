"""Free text that is checked: each sentence with the citations that support it, or marked, or left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from edge_rag.core.answer import Citation, FinishReason, TextDelta, Unsupported, UnsupportedText
from edge_rag.core.passage import Passage
from edge_rag.engine.ports import Outcome
from edge_rag.errors import EdgeRagError
from edge_rag.generator.citations.attribution import Attributor, Support
from edge_rag.generator.citations.sentences import SentenceCutter, WrittenSentence
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.streams.answer_stream import AnswerPart, Emitter, Listener, StopMatcher


class CheckedText:
    """Turns text in pieces into answer events; pure.

    Unsupported sentences wait for the first supported one: before it nothing is said, and where none comes nothing is.

    Args:
        passages: The passages of the prompt.
        numbering: Index in ``passages`` of the one that the prompt numbers 1, of the one that it numbers 2, and so on.
        attributor: Finds what supports a sentence among them.
        unsupported: What becomes of sentences that nothing supports.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        numbering: Sequence[int],
        attributor: Attributor,
        unsupported: UnsupportedText,
    ) -> None:
        self._passages = passages
        self._numbering = dict(enumerate(numbering, 1))
        self._attributor = attributor
        self._unsupported = unsupported
        self._cutter = SentenceCutter()
        self._waiting: list[WrittenSentence] = []
        self._length = 0
        self.supported = False

    def feed(self, text: str) -> list[AnswerPart]:
        """Takes the next piece and returns the events of the sentences that it completes."""
        return self._check(self._cutter.feed(text))

    def flush(self, whole: bool) -> list[AnswerPart]:
        """Returns the events of the rest.

        Args:
            whole: Whether the model ended its text; a sentence that was cut off has no support.
        """
        return self._check(self._cutter.flush(whole))

    def _check(self, sentences: Sequence[WrittenSentence]) -> list[AnswerPart]:
        events: list[AnswerPart] = []
        for sentence in sentences:
            marked = {self._numbering[number] for number in sentence.markers if number in self._numbering}
            support = self._attributor.support(sentence.claim, marked) if sentence.whole else ()
            if support:
                self.supported = True
                for early in self._waiting:
                    events += self._say(early, ())
                self._waiting = []
                events += self._say(sentence, support)
            elif self._unsupported is UnsupportedText.MARK:
                if self.supported:
                    events += self._say(sentence, ())
                else:
                    self._waiting.append(sentence)
        return events

    def _say(self, sentence: WrittenSentence, support: Sequence[Support]) -> list[AnswerPart]:
        between = ("\n" if sentence.new_line else " ") if self._length else ""
        start = self._length + len(between)
        self._length = end = start + len(sentence.text)
        events: list[AnswerPart] = [TextDelta(between + sentence.text)]
        if not support:
            return [*events, Unsupported(start, end)]
        for place in support:
            passage = self._passages[place.passage]
            events.append(
                Citation(
                    passage=place.passage,
                    document=passage.document,
                    page=passage.page,
                    start=passage.start + place.start,
                    end=passage.start + place.end,
                    text=passage.text[place.start : place.end],
                    answer_start=start,
                    answer_end=end,
                )
            )
        return events


class CiteStream:
    """Checked text: detokenized, cut at stop strings, told sentence by sentence. A ``TokenSink``.

    Args:
        listener: Hears every event.
        clock: Monotonic seconds.
        detokenizer: Decodes this answer.
        stops: Strings that end it.
        checked: Checks it.
        not_found: The answer where nothing in it has support.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        detokenizer: Detokenizer,
        stops: Sequence[str],
        checked: CheckedText,
        not_found: str,
    ) -> None:
        self._teller = Emitter(listener, clock)
        self._detokenizer = detokenizer
        self._stops = StopMatcher(stops)
        self._checked = checked
        self._not_found = not_found

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes tokens; True once a stop string appeared."""
        return self.hear(self._detokenizer.feed(tokens))

    def hear(self, text: str) -> bool:
        """Takes text; True once a stop string appeared."""
        self._tell(self._checked.feed(self._stops.feed(text)))
        return self._stops.stopped

    def remember(self, tokens: Sequence[int]) -> None:
        """Takes the tokens of the text heard so far."""
        self._detokenizer.feed(tokens)

    def finish(self, outcome: Outcome) -> None:
        """Checks what is left, and ends; with the not-found answer if nothing had support."""
        self._tell(self._checked.feed(self._stops.flush()))
        self._tell(self._checked.flush(whole=outcome.reason is not FinishReason.LENGTH))
        if not self._checked.supported:
            self._teller.tell(TextDelta(self._not_found))
            outcome = replace(outcome, reason=FinishReason.NOT_FOUND)
        self._teller.finish(outcome)

    def fail(self, error: EdgeRagError) -> None:
        """Ends badly."""
        self._teller.fail(error)

    def _tell(self, events: Sequence[AnswerPart]) -> None:
        for event in events:
            self._teller.tell(event)
