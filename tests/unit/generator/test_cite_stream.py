"""The second look at the end of an answer, and the thread of an entailment model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.core.answer import (
    Citation,
    FinishReason,
    TextDelta,
    Unsupported,
    UnsupportedReason,
    UnsupportedText,
    Usage,
    still_unsupported,
)
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed
from edge_rag.core.ids import ChunkId, DocumentId, Unrecognized
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.engine.ports import Outcome
from edge_rag.errors import InferenceFailed, NotReady, RequestCancelled
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.judge import EntailmentJudge, Judge
from edge_rag.generator.cite_stream import CheckedText, CheckThread, CiteStream
from edge_rag.generator.streams import AnswerPart
from edge_rag.reranker.scoring import Stemmer
from tests.fixtures.makers.entailment_models import CONTRADICTS, ENTAILS, NEUTRAL, Always
from tests.unit.generator.test_trace import TOKENIZER

PUMP = "The bearings must be greased every 2,000 operating hours. Use lithium grease."
VALVE = "Never open the check valve. Shut the suction valve first."
FAN = "The fan belt must be replaced every 18 months."
GREASED, SHUT, BELT = "The bearings must be greased every 2,000 operating hours.", "Shut the suction valve first.", FAN
NAMED = "The bearings of the Grundfos must be greased every 2,000 operating hours."
REWORDED = "The bearings need fresh lubricant every 2,000 operating hours."
CHEESE = "It is made of cheese."
DONE = Outcome(FinishReason.STOP, Usage(), 0.0, 0.0)


def ranked(number: int, text: str, *headings: str) -> RankedPassage:
    passage = Passage(
        ChunkId(number), DocumentId(f"d{number}"), f"{number}.md", None, 0, len(text), text, context=headings
    )
    return RankedPassage(passage, 1.0, tuple(Sentence(start, end) for start, end in sentence_spans(text)))


OFFERED = [ranked(1, PUMP, "Pump of Grundfos"), ranked(2, VALVE), ranked(3, FAN)]


def checked(judge: Judge | None = None, unsupported: UnsupportedText = UnsupportedText.MARK) -> CheckedText:
    """Returns a check with the first two passages in the prompt."""
    return CheckedText(
        [each.passage for each in OFFERED],
        range(2),
        Attributor(OFFERED[:2], Stemmer()),
        unsupported,
        judge,
        lambda: Attributor(OFFERED, Stemmer(), headings=True),
    )


def parts(
    text: str, judge: Judge | None = None, unsupported: UnsupportedText = UnsupportedText.MARK
) -> list[AnswerPart]:
    check = checked(judge, unsupported)
    return [*check.feed(text), *check.flush(complete=True)]


def cited(found: Sequence[AnswerPart]) -> list[str]:
    return [part.text for part in found if isinstance(part, Citation)]


def left(found: Sequence[AnswerPart]) -> list[UnsupportedReason | Unrecognized]:
    marks = [part for part in found if isinstance(part, Unsupported)]
    return [part.reason for part in still_unsupported(marks, [part for part in found if isinstance(part, Citation)])]


@pytest.mark.parametrize(
    ("sentence", "source"),
    [(NAMED, GREASED), (BELT, BELT)],
    ids=["the headings have its name", "of a passage that was not in the prompt"],
)
def test_a_citation_that_is_missing_is_added_at_the_end(sentence: str, source: str) -> None:
    found = parts(f"{SHUT} {sentence} {CHEESE}")
    kinds = [type(part) for part in found]
    assert kinds == [TextDelta, Citation, TextDelta, Unsupported, TextDelta, Unsupported, Citation]
    assert cited(found) == [SHUT, source]
    start = len(SHUT) + 1
    last = found[-1]
    assert isinstance(last, Citation)
    assert (last.answer_start, last.answer_end) == (start, start + len(sentence))
    assert left(found) == [UnsupportedReason.NO_SOURCE]


def test_an_answer_whose_support_is_only_seen_at_the_end_is_emitted_then() -> None:
    found = parts(f"{CHEESE} {NAMED}")
    assert [type(part) for part in found] == [TextDelta, Unsupported, TextDelta, Citation]
    assert cited(found) == [GREASED]


def test_nothing_is_left_out_that_is_supported_at_a_second_look() -> None:
    found = parts(f"{SHUT} {NAMED} {CHEESE} {BELT}", unsupported=UnsupportedText.OMIT)
    assert "".join(part.text for part in found if isinstance(part, TextDelta)) == f"{SHUT} {NAMED} {BELT}"
    assert cited(found) == [SHUT, GREASED, BELT]


def test_a_name_of_another_section_is_not_found_in_the_headings() -> None:
    assert left(parts(f"{SHUT} {NAMED.replace('Grundfos', 'Siemens')}")) == [UnsupportedReason.NO_SOURCE]


def test_another_number_is_named_once_with_its_place() -> None:
    check = checked()
    text = f"{SHUT} {GREASED.replace('2,000', '4,000')}"
    found = [*check.feed(text), *check.flush(complete=True)]
    assert left(found) == [UnsupportedReason.OTHER_NUMBER]
    (conflict,) = check.conflicts
    assert (conflict.claimed, conflict.stated) == ("4,000 operating hours", "2,000 operating hours")
    assert (conflict.document, conflict.text) == ("1.md", GREASED)
    assert text[conflict.answer_start : conflict.answer_end] == GREASED.replace("2,000", "4,000")


def test_a_model_accepts_other_words_at_the_end_all_at_once() -> None:
    model = Always(ENTAILS)
    found = parts(f"{SHUT} {REWORDED} {CHEESE} {REWORDED.replace('2,000', '3,000')}", EntailmentJudge(model))
    assert isinstance(found[-1], Citation)
    assert found[-1].text == GREASED
    assert left(found).count(UnsupportedReason.NO_SOURCE) + left(found).count(UnsupportedReason.OTHER_NUMBER) >= 1
    assert not any("3,000" in claim for pairs in model.asked for _, claim in pairs)


def test_what_a_model_contradicts_is_marked_and_not_looked_for_again() -> None:
    model = Always(CONTRADICTS)
    check = checked(EntailmentJudge(model))
    assert [*check.feed(f"{GREASED} {SHUT}"), *check.flush(complete=True)] == []
    assert not check.supported
    assert [pair for pairs in model.asked for pair in pairs] == [(GREASED, GREASED), (SHUT, SHUT)]


class Gated:
    """A classifier that waits until it may answer."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.asked.set()
        self.may.wait(60)
        return Always(NEUTRAL).probabilities(pairs)


class Broken:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        raise self._error


def stream(judge: Judge, thread: CheckThread, events: list[GenerationEvent]) -> CiteStream:
    return CiteStream(events.append, lambda: 0.0, TOKENIZER.detokenizer(), (), checked(judge), "Nothing.", thread)


def test_the_engine_does_not_wait_for_the_model() -> None:
    model, thread, events = Gated(), CheckThread(), list[GenerationEvent]()
    sink = stream(EntailmentJudge(model), thread, events)
    assert not sink.extend_text(f"{GREASED} {SHUT}")
    sink.finish(DONE)
    assert model.asked.wait(60)
    assert events == []
    model.may.set()
    thread.close()
    assert cited([event for event in events if isinstance(event, Citation)]) == [GREASED, SHUT]
    assert isinstance(events[-1], Generated)


def test_a_cancelled_answer_ends_without_the_rest_of_its_check() -> None:
    model, thread, events = Gated(), CheckThread(), list[GenerationEvent]()
    sink = stream(EntailmentJudge(model), thread, events)
    sink.extend_text(f"{GREASED} {SHUT} ")
    assert model.asked.wait(60)
    sink.extend_text(f"{GREASED} {SHUT}")
    sink.finish(DONE)
    sink.cancel(None)
    sink.cancel(None)
    assert sink.extend_text("more")
    model.may.set()
    thread.close()
    assert [type(event) for event in events] == [TextDelta, Citation, GenerationFailed]
    assert isinstance(events[-1], GenerationFailed)
    assert isinstance(events[-1].error, RequestCancelled)


@pytest.mark.parametrize("error", [InferenceFailed("no"), ValueError("no")])
def test_a_model_that_fails_ends_its_answer_once(error: Exception) -> None:
    thread, events = CheckThread(), list[GenerationEvent]()
    sink = stream(EntailmentJudge(Broken(error)), thread, events)
    sink.extend_text(f"{GREASED} {SHUT} Never")
    sink.finish(DONE)
    thread.close()
    (failed,) = events
    assert isinstance(failed, GenerationFailed)
    assert isinstance(failed.error, InferenceFailed)


def test_after_the_thread_is_closed_an_answer_fails_and_does_not_hang() -> None:
    thread, events = CheckThread(), list[GenerationEvent]()
    sink = stream(EntailmentJudge(Always(NEUTRAL)), thread, events)
    thread.close()
    sink.extend_text(f"{GREASED} {SHUT}")
    sink.finish(DONE)
    (failed,) = events
    assert isinstance(failed, GenerationFailed)
    assert isinstance(failed.error, NotReady)


def test_answers_of_several_requests_do_not_mix() -> None:
    thread = CheckThread()
    heard: list[list[GenerationEvent]] = [[], [], []]
    sinks = [stream(EntailmentJudge(Always(NEUTRAL)), thread, events) for events in heard]
    for text in (GREASED, " ", SHUT):
        for sink in sinks:
            sink.extend_text(text)
    for sink in sinks:
        sink.finish(replace(DONE, queue_s=1.0))
    thread.close()
    assert heard[0] == heard[1] == heard[2]
    assert isinstance(heard[0][-1], Generated)
