"""The second look at the end of an answer."""

from collections.abc import Sequence

import pytest

from edge_rag.core.answer import (
    Citation,
    TextDelta,
    Unsupported,
    UnsupportedReason,
    UnsupportedText,
    still_unsupported,
)
from edge_rag.core.ids import ChunkId, DocumentId, Unrecognized
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.cite_stream import CheckedText
from edge_rag.generator.streams import AnswerPart
from edge_rag.reranker.scoring import Stemmer

PUMP = "The bearings must be greased every 2,000 operating hours. Use lithium grease."
VALVE = "Never open the check valve. Shut the suction valve first."
FAN = "The fan belt must be replaced every 18 months."
GREASED, SHUT, BELT = "The bearings must be greased every 2,000 operating hours.", "Shut the suction valve first.", FAN
NAMED = "The bearings of the Grundfos must be greased every 2,000 operating hours."
CHEESE = "It is made of cheese."


def ranked(number: int, text: str, *headings: str) -> RankedPassage:
    passage = Passage(
        ChunkId(number), DocumentId(f"d{number}"), f"{number}.md", None, 0, len(text), text, context=headings
    )
    return RankedPassage(passage, 1.0, tuple(Sentence(start, end) for start, end in sentence_spans(text)))


OFFERED = [ranked(1, PUMP, "Pump of Grundfos"), ranked(2, VALVE), ranked(3, FAN)]


def checked(unsupported: UnsupportedText = UnsupportedText.MARK) -> CheckedText:
    return CheckedText(
        [each.passage for each in OFFERED],
        range(2),
        Attributor(OFFERED[:2], Stemmer()),
        unsupported,
        lambda: Attributor(OFFERED, Stemmer(), headings=True),
    )


def parts(text: str, unsupported: UnsupportedText = UnsupportedText.MARK) -> list[AnswerPart]:
    check = checked(unsupported)
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
