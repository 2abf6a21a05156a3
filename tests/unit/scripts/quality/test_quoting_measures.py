"""What scripts/bench/quality/quoting counts."""

from __future__ import annotations

import pytest

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Reranked, Sentence
from edge_rag.core.text import sentence_spans
from scripts.bench.quality.answer_quality import Asked
from scripts.bench.quality.quoting import Answered, Bound, Quality, quality

TEXT = "The pump runs. It is greased weekly. It hums."
QUESTION = Asked("How often is the pump greased?", 0, "en/a.txt", ("weekly",))


def answered(document: str, best: int, second: int, evidence: float) -> Answered:
    values = {best: 2.0, second: 1.0}
    sentences = tuple(Sentence(*span, values.get(n, -9.0)) for n, span in enumerate(sentence_spans(TEXT)))
    passage = Passage(ChunkId(1), DocumentId("d"), document, None, 0, len(TEXT), TEXT)
    return Answered(QUESTION, Reranked((RankedPassage(passage, 1.0, sentences),), evidence), {})


@pytest.mark.parametrize(
    ("answer", "cites", "in_one", "in_two"),
    [
        (answered("en/a.txt", 1, 2, 0.9), True, True, True),
        (answered("en/a.txt", 2, 1, 0.9), True, False, True),
        (answered("de/a.txt", 1, 2, 0.9), False, True, True),
        (answered("en/a.txt", 1, 2, 0.1), False, False, False),
    ],
)
def test_an_answer_is_right_by_its_quotes(answer: Answered, cites: bool, in_one: bool, in_two: bool) -> None:
    assert (answer.cites(), answer.holds(1), answer.holds(2)) == (cites, in_one, in_two)


def test_shares_are_of_the_answers_and_of_the_questions() -> None:
    there = [answered("en/a.txt", 1, 2, 0.9), answered("en/a.txt", 2, 1, 0.9), answered("en/a.txt", 1, 2, 0.1)]
    without = [answered("en/b.txt", 1, 2, 0.1), answered("en/b.txt", 1, 2, 0.9)]
    assert quality(there, without) == Quality(1.0, 0.5, 1.0, 1.0, 0.0, 1 / 3, 0.5)


def test_bounds_hold_in_every_language_or_on_the_mean_of_all_but_english() -> None:
    found = {
        language: Quality(share, share, share, share, share, 1 - share, share)
        for language, share in (("en", 0.1), ("de", 0.9), ("el", 0.7))
    }
    assert [line.split(" is ")[0] for line in Bound("right_paragraph", True, 0.8).failures(found)] == [
        "right_paragraph of en",
        "right_paragraph of el",
    ]
    assert not Bound("gold_in_one", False, 0.79).failures(found)
    assert len(Bound("gold_in_one", False, 0.81).failures(found)) == 1
    assert len(Bound("turned_away", True, 0.2, most=True).failures(found)) == 2
