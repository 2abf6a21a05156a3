"""The checked text of CITE mode: each sentence with its citations, or a mark that nothing supports it.

The rules (``citations.attribution``) take a millisecond and run on the engine's thread. At the end of an answer,
sentences without support are compared with more passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.answer import (
    FinishReason,
    NumberConflict,
    TextDelta,
    Unsupported,
    UnsupportedReason,
    UnsupportedText,
)
from edge_rag.core.passage import Passage
from edge_rag.engine.ports import Outcome
from edge_rag.generator.citations.attribution import Attributor, Finding
from edge_rag.generator.citations.sentence_splitter import AnswerSentence, SentenceSplitter
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.streams import AnswerPart, Listener, TextStream, citation_of

MAX_CONFLICTS: Final = 16
"""Most contradicted numbers of an answer that are named."""

MAX_OPEN: Final = 16
"""Most sentences without support, the first ones, that are looked for once more at the end of an answer."""


@dataclass(slots=True)
class _Sentence:
    """A sentence of the answer, what the passages say about it, and its place in the shown text, once it is shown."""

    written: AnswerSentence
    marked: frozenset[int]
    finding: Finding
    start: int = 0
    end: int = 0

    @property
    def is_open(self) -> bool:
        """Whether support may still be found: the rules found none, and the sentence was not cut."""
        return self.written.complete and not self.finding.support


class CheckedText:
    """Turns streamed text into answer events, sentence by sentence; pure.

    Unsupported sentences are held back until the first supported one; if none comes, nothing is emitted. Marked ones
    may get citations at the end of the text.

    Args:
        passages: The passages of the question, best first.
        numbering: Indices of the passages in the order in which the prompt numbers them, from 1.
        wider: Makes an attributor that looks more widely; None if there is nothing more to look at.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        numbering: Sequence[int],
        attributor: Attributor,
        unsupported: UnsupportedText,
        wider: Callable[[], Attributor] | None = None,
    ) -> None:
        self._passages = passages
        self._numbering = dict(enumerate(numbering, 1))
        self._attributor = attributor
        self._unsupported = unsupported
        self._make_wider = wider
        self._wider: Attributor | None = None
        self._splitter = SentenceSplitter()
        self._held: list[_Sentence] = []
        self._marked: list[_Sentence] = []
        self._length = 0
        self.supported = False
        self.conflicts: list[NumberConflict] = []

    def feed(self, text: str) -> list[AnswerPart]:
        return self._check(self._splitter.feed(text))

    def flush(self, complete: bool) -> list[AnswerPart]:
        return [*self._check(self._splitter.flush(complete)), *self._cover()]

    def _check(self, written: Sequence[AnswerSentence]) -> list[AnswerPart]:
        events: list[AnswerPart] = []
        for each in written:
            marked = frozenset(self._numbering[number] for number in each.markers if number in self._numbering)
            finding = self._attributor.find(each.claim, marked) if each.complete else Finding()
            sentence = _Sentence(each, marked, finding)
            if self._unsupported is UnsupportedText.OMIT:
                self._look_again([sentence])  # it cannot be put in later
            if sentence.finding.support:
                self.supported = True
                for held in (*self._held, sentence):
                    events += self._shown(held)
                self._held = []
            elif self._unsupported is UnsupportedText.MARK:
                if self.supported:
                    events += self._shown(sentence)
                else:
                    self._held.append(sentence)
        return events

    def _cover(self) -> list[AnswerPart]:
        """Looks for the support of the sentences without one once more; returns the events of the citations found."""
        events: list[AnswerPart] = []
        if self._held:
            self._look_again(self._held)
            self.supported = any(sentence.finding.support for sentence in self._held)
            if self.supported:
                for sentence in self._held:
                    events += self._shown(sentence)
        elif self._marked:
            self._look_again(self._marked)
            for sentence in self._marked:
                events += self._citations(sentence)
        return events

    def _look_again(self, sentences: Sequence[_Sentence]) -> None:
        """Looks for the support of the sentences without one among more passages."""
        still_open = [sentence for sentence in sentences if sentence.is_open][:MAX_OPEN]
        if still_open and self._make_wider is not None:
            self._wider = self._wider or self._make_wider()
            for sentence in still_open:
                sentence.finding = self._wider.find(sentence.written.claim, sentence.marked)

    def _shown(self, sentence: _Sentence) -> list[AnswerPart]:
        separator = ("\n" if sentence.written.new_line else " ") if self._length else ""
        sentence.start = self._length + len(separator)
        self._length = sentence.end = sentence.start + len(sentence.written.text)
        events: list[AnswerPart] = [TextDelta(separator + sentence.written.text)]
        if sentence.finding.support:
            return [*events, *self._citations(sentence)]
        self._marked.append(sentence)
        self._add_conflict(sentence)
        no_source = sentence.finding.conflict is None
        reason = UnsupportedReason.NO_SOURCE if no_source else UnsupportedReason.OTHER_NUMBER
        return [*events, Unsupported(sentence.start, sentence.end, reason)]

    def _citations(self, sentence: _Sentence) -> list[AnswerPart]:
        self._add_conflict(sentence)
        where = sentence.start, sentence.end
        return [
            citation_of(place.passage, self._passages[place.passage], place.start, place.end, *where)
            for place in sentence.finding.support
        ]

    def _add_conflict(self, sentence: _Sentence) -> None:
        found = sentence.finding.conflict
        if found is None or len(self.conflicts) >= MAX_CONFLICTS:
            return
        place, passage = found.place, self._passages[found.place.passage]
        named = NumberConflict(
            answer_start=sentence.start,
            answer_end=sentence.end,
            claimed=found.claimed,
            stated=found.stated,
            passage=place.passage,
            document=passage.document,
            page=passage.page,
            start=passage.start + place.start,
            end=passage.start + place.end,
            text=passage.text[place.start : place.end],
        )
        if named not in self.conflicts:
            self.conflicts.append(named)


class CiteStream(TextStream):
    """Checked text: detokenized, cut at stop strings, emitted sentence by sentence.

    Args:
        not_found: The answer if no sentence has support.
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
        super().__init__(listener, clock, detokenizer, stops, checked.feed)
        self._checked = checked
        self._not_found = not_found

    def finish(self, outcome: Outcome) -> None:
        """Checks the rest, and ends; with the not-found answer if no sentence had support."""
        self.flush_stops()
        self._emitter.emit(*self._checked.flush(complete=outcome.reason is not FinishReason.LENGTH))
        self.conflicts = tuple(self._checked.conflicts)
        if not self._checked.supported:
            self._emitter.emit(TextDelta(self._not_found))
            outcome = replace(outcome, reason=FinishReason.NOT_FOUND)
        super().finish(outcome)
