"""What scripts/measure_answers counts."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.core.answer import Citation, FinishReason
from scripts.bench.quality.answer_quality import (
    Asked,
    Given,
    Shares,
    Verdict,
    is_verbatim,
    judge,
    read_articles,
    summarize,
)
from scripts.bench.quality.not_found import Point, curve, plot, separation

STORED = {"a.txt": "The pump runs. It is greased weekly.", "b.txt": "Nothing of the kind."}
ASKED = Asked("How often is it greased?", 0, "a.txt", ("weekly", "each week"))


def citation(document: str, start: int, end: int, at: int = 0) -> Citation:
    return Citation(0, document, None, start, end, STORED[document][start:end], at, at + end - start)


def given(*citations: Citation) -> Given:
    return Given(" ".join(each.text for each in citations), citations, FinishReason.STOP, 0.5)


RIGHT = given(citation("a.txt", 15, 36))
BOTH = given(citation("b.txt", 0, 20), citation("a.txt", 15, 36, at=21))
POINTS = Given(
    f"- {BOTH.citations[0].text}\n- {BOTH.citations[1].text}",
    (citation("b.txt", 0, 20, at=2), citation("a.txt", 15, 36, at=25)),
    FinishReason.STOP,
    0.5,
)
HEADED = Given(
    f"b.txt\n- {BOTH.citations[0].text}\n\na.txt\n- {BOTH.citations[1].text}",
    (citation("b.txt", 0, 20, at=8), citation("a.txt", 15, 36, at=38)),
    FinishReason.STOP,
    0.5,
)


def test_a_quoted_answer_from_the_right_paragraph_has_all_merits() -> None:
    assert judge(ASKED, RIGHT, STORED) == Verdict(found=True, cites=True, verbatim=True, contains=True)
    assert judge(ASKED, BOTH, STORED) == Verdict(found=True, cites=True, verbatim=True, contains=True)


def test_an_answer_from_elsewhere_neither_cites_nor_contains() -> None:
    elsewhere = given(citation("b.txt", 0, 20))
    assert judge(ASKED, elsewhere, STORED) == Verdict(found=True, cites=False, verbatim=True, contains=False)


def test_the_not_found_answer_has_no_merit_whatever_it_says() -> None:
    assert judge(ASKED, replace(RIGHT, reason=FinishReason.NOT_FOUND), STORED) == Verdict(False, False, False, False)


@pytest.mark.parametrize(
    "altered",
    [
        replace(RIGHT, text="It is greased weekly!"),
        replace(RIGHT, text="It is greased weekly. Daily, even."),
        replace(RIGHT, citations=(replace(RIGHT.citations[0], start=14, end=35),)),
        replace(RIGHT, citations=(replace(RIGHT.citations[0], text="It is greased daily!!"),)),
        replace(RIGHT, citations=(replace(RIGHT.citations[0], document="b.txt"),)),
        replace(RIGHT, citations=()),
        replace(RIGHT, text="", citations=()),
        replace(BOTH, citations=(BOTH.citations[0], replace(BOTH.citations[1], answer_start=20))),
        replace(POINTS, text=POINTS.text.replace("\n- ", "\n* ")),
        replace(POINTS, citations=POINTS.citations[:1]),
        replace(HEADED, text=HEADED.text.replace("b.txt", "a.txt")),
    ],
)
def test_an_answer_is_verbatim_only_if_every_character_is_stored_text_that_is_cited(altered: Given) -> None:
    assert is_verbatim(RIGHT, STORED)
    assert is_verbatim(BOTH, STORED)
    assert is_verbatim(POINTS, STORED)
    assert is_verbatim(HEADED, STORED)
    assert not is_verbatim(altered, STORED)


def test_shares_of_answers_leave_out_who_got_none_and_shares_of_questions_do_not() -> None:
    good, wrong = Verdict(True, True, True, True), Verdict(True, False, True, False)
    summary = summarize([good, good, wrong, Verdict(False, False, False, False)])
    assert (summary.questions, summary.not_found) == (4, 0.25)
    assert summary.of_answers == Shares(cites=2 / 3, verbatim=1.0, contains=2 / 3)
    assert summary.of_questions == Shares(cites=0.5, verbatim=0.75, contains=0.5)
    assert summarize([Verdict(False, False, False, False)]).of_answers == Shares(0.0, 0.0, 0.0)


def test_a_paragraph_that_is_there_twice_is_one_document_and_impossible_questions_are_left_out(tmp_path: Path) -> None:
    def asks(text: str, *answers: str) -> dict[str, object]:
        return {"question": text, "answers": [{"text": answer, "answer_start": 0} for answer in answers]}

    first = {"context": "Same.", "qas": [asks("one?", "Same"), asks("none?")]}
    again = {"context": "Same.", "qas": [asks("two?", "Same")]}
    other = {"context": "Other.", "qas": [asks("three?", "Other", "Oth")]}
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [first, other]}, {"paragraphs": [again]}]}))
    articles = read_articles(file)
    (same, other_name), later = articles.documents[0], articles.documents[1]
    assert later == {}
    assert [(asked.text, asked.article, asked.document) for asked in articles.questions] == [
        ("one?", 0, same),
        ("three?", 0, other_name),
        ("two?", 1, same),
    ]
    assert articles.questions[1].answers == ("Other", "Oth")


def test_a_threshold_turns_away_what_is_below_it_and_keeps_what_reaches_it() -> None:
    points = curve([0.5, 0.9, 0.3, 0.4], [0.1, 0.3], [0.0, 0.3, 0.31, 1.0])
    assert points == (
        Point(0.0, 0.0, 0.0),
        Point(0.3, 0.0, 0.5),
        Point(0.31, 0.25, 1.0),
        Point(1.0, 1.0, 1.0),
    )


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    chance = random.Random(5)
    with_answer = [chance.randrange(8) / 8 for _ in range(40)]
    without = [chance.randrange(6) / 8 for _ in range(30)]
    pairs = [(one > other) + (one == other) / 2 for one in with_answer for other in without]
    assert separation(with_answer, without) == pytest.approx(sum(pairs) / len(pairs))
    assert (separation([1.0], [0.0]), separation([0.0], [1.0]), separation([0.5], [0.5])) == (1.0, 0.0, 0.5)


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    points = curve([0.5, 0.9, 0.3], [0.1, 0.3], [step / 10 for step in range(11)])
    plot(points, points[3], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
