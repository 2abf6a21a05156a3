"""The checked text of CITE mode: each sentence with its citations, or a mark that nothing supports it.

The rules (``citations.attribution``) take a millisecond and run on the engine's thread. With an entailment model the
sentences of all answers are judged on the one thread of ``CheckThread``; the engine goes on meanwhile. At the end of an
answer, the sentences that are still without support are looked for once more, all together and more widely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from edge_rag.errors import EdgeRagError, InferenceFailed, NotReady, RequestCancelled
from edge_rag.generator.citations.attribution import Attributor, Finding
from edge_rag.generator.citations.judge import Judge, RulesAlone, Verdict
from edge_rag.generator.citations.sentence_splitter import AnswerSentence, SentenceSplitter
from edge_rag.generator.prompt.tokenizer import Detokenizer
from edge_rag.generator.streams import AnswerPart, Listener, TextStream, citation_of

MAX_CONFLICTS: Final = 16
"""Most contradicted numbers of an answer that are named."""

MAX_OPEN: Final = 16
"""Most sentences without support, the first ones, that are looked for once more at the end of an answer."""


@dataclass(slots=True)
class _Sentence:
    """A sentence of the answer, what was found and decided of it, and where it is shown, once it is."""

    written: AnswerSentence
    marked: frozenset[int]
    finding: Finding
    verdict: Verdict
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
        judge: Judge | None = None,
        wider: Callable[[], Attributor] | None = None,
    ) -> None:
        self._passages = passages
        self._numbering = dict(enumerate(numbering, 1))
        self._attributor = attributor
        self._unsupported = unsupported
        self._judge = RulesAlone() if judge is None else judge
        self._make_wider = wider
        self._wider: Attributor | None = None
        self._splitter = SentenceSplitter()
        self._held: list[_Sentence] = []
        self._marked: list[_Sentence] = []
        self._length = 0
        self.supported = False
        self.conflicts: list[NumberConflict] = []

    def feed(self, text: str) -> list[AnswerPart]:
        return self.check(self.split(text))

    def flush(self, complete: bool) -> list[AnswerPart]:
        return [*self.check(self.split_rest(complete)), *self.cover()]

    def split(self, text: str) -> list[AnswerSentence]:
        """Takes the next piece and returns the sentences that it completes, for ``check``; any other thread than it."""
        return self._splitter.feed(text)

    def split_rest(self, complete: bool) -> list[AnswerSentence]:
        return self._splitter.flush(complete)

    def check(self, written: Sequence[AnswerSentence]) -> list[AnswerPart]:
        """Returns the events of the next sentences."""
        events: list[AnswerPart] = []
        for each in written:
            marked = frozenset(self._numbering[number] for number in each.markers if number in self._numbering)
            finding = self._attributor.find(each.claim, marked) if each.complete else Finding(each.claim)
            # What lacks words is judged at the end, all of it at once.
            (verdict,) = self._judge.decide([replace(finding, candidates=())])
            sentence = _Sentence(each, marked, finding, verdict)
            if self._unsupported is UnsupportedText.OMIT:
                self._look_again([sentence])  # it cannot be put in later
            if sentence.verdict.support:
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

    def cover(self) -> list[AnswerPart]:
        """Looks for the support of the sentences without one once more; returns the events of what is found."""
        events: list[AnswerPart] = []
        if self._held:
            self._look_again(self._held)
            self.supported = any(sentence.verdict.support for sentence in self._held)
            if self.supported:
                for sentence in self._held:
                    events += self._shown(sentence)
        elif self._marked:
            self._look_again(self._marked)
            for sentence in self._marked:
                events += self._citations(sentence)
        return events

    def _look_again(self, sentences: Sequence[_Sentence]) -> None:
        """Decides once more on the sentences without support, among more passages and with the judge's help."""
        still_open = [sentence for sentence in sentences if sentence.is_open][:MAX_OPEN]
        if still_open and self._make_wider is not None:
            self._wider = self._wider or self._make_wider()
            for sentence in still_open:
                sentence.finding = self._wider.find(sentence.written.claim, sentence.marked)
        verdicts = self._judge.decide([sentence.finding for sentence in still_open])
        for sentence, verdict in zip(still_open, verdicts, strict=True):
            sentence.verdict = verdict

    def _shown(self, sentence: _Sentence) -> list[AnswerPart]:
        separator = ("\n" if sentence.written.new_line else " ") if self._length else ""
        sentence.start = self._length + len(separator)
        self._length = sentence.end = sentence.start + len(sentence.written.text)
        events: list[AnswerPart] = [TextDelta(separator + sentence.written.text)]
        if sentence.verdict.support:
            return [*events, *self._citations(sentence)]
        self._marked.append(sentence)
        self._add_conflict(sentence)
        reason = sentence.verdict.reason or UnsupportedReason.NO_SOURCE
        return [*events, Unsupported(sentence.start, sentence.end, reason)]

    def _citations(self, sentence: _Sentence) -> list[AnswerPart]:
        self._add_conflict(sentence)
        where = sentence.start, sentence.end
        return [
            citation_of(place.passage, self._passages[place.passage], place.start, place.end, *where)
            for place in sentence.verdict.support
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


class CheckThread:
    """The thread that checks answers with an entailment model; the pieces of all answers in the order of their arrival.

    Any thread. The thread starts with the first piece.
    """

    def __init__(self) -> None:
        self._pieces = ThreadPoolExecutor(1, thread_name_prefix="check")

    def submit(self, check: Callable[[], None]) -> None:
        """Calls a function, which must not raise, after those before it.

        Raises:
            NotReady: The thread is closed.
        """
        try:
            self._pieces.submit(check)
        except RuntimeError as error:
            raise NotReady("the daemon is shutting down") from error

    def close(self) -> None:
        """Ends the thread after what was submitted."""
        self._pieces.shutdown()


class CiteStream(TextStream):
    """Checked text: detokenized, cut at stop strings, emitted sentence by sentence.

    Args:
        clock: Monotonic seconds.
        not_found: The answer if no sentence has support.
        thread: Where the sentences are checked; None to check them at once.
    """

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        detokenizer: Detokenizer,
        stops: Sequence[str],
        checked: CheckedText,
        not_found: str,
        thread: CheckThread | None = None,
    ) -> None:
        super().__init__(listener, clock, detokenizer, stops, self._parts_of_text)
        self._checked = checked
        self._not_found = not_found
        self._thread = thread
        self._error: EdgeRagError | None = None
        self._ended = False

    def extend_text(self, text: str) -> bool:
        return super().extend_text(text) or self._error is not None

    def finish(self, outcome: Outcome) -> None:
        """Checks the rest, and ends; with the not-found answer if no sentence had support."""
        self.flush_stops()
        rest = self._checked.split_rest(complete=outcome.reason is not FinishReason.LENGTH)
        self._run(lambda: self._finish(rest, outcome))

    def fail(self, error: EdgeRagError) -> None:
        """Ends the stream with an error; what is not checked yet is dropped."""
        self._error = self._error or error
        self._run(self._fail)

    def cancel(self, error: EdgeRagError | None) -> None:
        if self._thread is not None:
            self.fail(error or RequestCancelled("cancelled by the caller"))

    def _parts_of_text(self, text: str) -> Sequence[AnswerPart]:
        if written := self._checked.split(text):
            self._run(lambda: self._emitter.emit(*self._checked.check(written)))
        return ()

    def _finish(self, rest: Sequence[AnswerSentence], outcome: Outcome) -> None:
        self._emitter.emit(*self._checked.check(rest))
        self._emitter.emit(*self._checked.cover())
        self.conflicts = tuple(self._checked.conflicts)
        if not self._checked.supported:
            self._emitter.emit(TextDelta(self._not_found))
            outcome = replace(outcome, reason=FinishReason.NOT_FOUND)
        self._ended = True
        super().finish(outcome)

    def _fail(self) -> None:
        assert self._error is not None
        self._ended = True
        super().fail(self._error)

    def _run(self, step: Callable[[], None]) -> None:
        """Takes a step of the check: at once, or on the thread after the steps before it."""
        if self._thread is None:
            step()
            return
        try:
            self._thread.submit(lambda: self._take(step))
        except NotReady as error:
            self._error = self._error or error
            self._take(step)

    def _take(self, step: Callable[[], None]) -> None:
        """Takes a step on the thread; an error ends the stream, and later steps do nothing."""
        if self._ended:
            return
        try:
            if self._error is None:
                step()
                return
        except EdgeRagError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - the answer must end, whatever happened on this thread
            self._error = InferenceFailed(f"the check of an answer failed: {error}")
        self._fail()
