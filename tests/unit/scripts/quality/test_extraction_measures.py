"""Which texts are the same value, and which accepted answers are values, in the measurement of mode extract."""

from __future__ import annotations

import json

import pytest

from scripts.bench.quality.extraction.__main__ import VALUE_QUESTIONS, kind_of, same_value


@pytest.mark.parametrize(
    ("value", "accepted", "same"),
    [
        ("2,000 operating hours", "2,000", True),
        ("2,000 operating hours", "2000 hours", True),
        ("four", "4 teams", True),
        ("2,000 hours", "2,000 days", False),
        ("20 to 30 hertz", "20 hertz", False),
        ("200 hours", "2,000 hours", False),
        ("hertz", "hertz", False),
    ],
)
def test_values_are_the_same_by_numbers_and_words(value: str, accepted: str, same: bool) -> None:
    assert same_value(value, accepted) is same
    assert same_value(accepted, value) is same


@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        ("8 February 2007", "date or year"),
        ("1349", "date or year"),
        ("after 1279", "date or year"),
        ("$5 million in cash", "number in digits"),
        ("91%", "number in digits"),
        ("three epicenters", "number in words"),
        ("MPEG-4", "other with a number"),
        ("Joseph Priestley", None),
    ],
)
def test_an_accepted_answer_is_a_value_by_its_form(accepted: str, kind: str | None) -> None:
    assert kind_of([accepted]) == kind


def test_the_questions_over_the_samples_have_answers() -> None:
    questions = json.loads(VALUE_QUESTIONS.read_text("utf-8"))
    assert len(questions) == len({each["question"] for each in questions}) == 76
    assert all(each["answers"] for each in questions)
