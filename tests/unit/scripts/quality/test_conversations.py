"""How conversations are made of single questions."""

from __future__ import annotations

import pytest

from scripts.bench.quality.answer_quality import Asked
from scripts.bench.quality.conversations.maker import KINDS, Conversation, make

DOCUMENTS = {
    "tesla": "Nikola Tesla came to New York in 1884. His funeral was in 1943, and he left no money. He had no wife.",
    "panthers": "The Carolina Panthers won 15 games in 2015. The defense of the Panthers led the league.",
    "castle": "The castle of Newcastle was built in 1080. It burned in 1744.",
}
QUESTIONS = [
    Asked("Who was the wife of Nikola Tesla?", 0, "tesla", ("no wife",)),
    Asked("In what year was the funeral of Nikola Tesla?", 0, "tesla", ("1943",)),
    Asked("How many games were won by the Panthers?", 1, "panthers", ("15",)),
    Asked("What was led by the defense of the Panthers?", 1, "panthers", ("the league",)),
    Asked("What was built in 1080?", 2, "castle", ("castle",)),
    Asked("What burned in 1744?", 2, "castle", ("It",)),
]


def conversations(language: str = "en") -> list[Conversation]:
    return make(language, QUESTIONS, DOCUMENTS, dict.fromkeys(KINDS, 50))


@pytest.mark.parametrize(
    ("kind", "before", "raw", "resolved"),
    [
        ("pronoun", QUESTIONS[0].text, "In what year was the funeral of him?", QUESTIONS[1].text),
        ("pronoun", QUESTIONS[2].text, "What was led by the defense of them?", QUESTIONS[3].text),
        ("left out", QUESTIONS[2].text, "What was led by the defense?", QUESTIONS[3].text),
    ],
)
def test_what_is_shared_becomes_a_pronoun_or_is_left_out(kind: str, before: str, raw: str, resolved: str) -> None:
    made = {(each.kind, each.before, each.raw, each.resolved) for each in conversations()}
    assert (kind, (before,), raw, resolved) in made


def test_a_question_about_something_else_was_asked_with_the_other_name() -> None:
    (one,) = (each for each in conversations() if each.kind == "correction" and "1744" in each.raw)
    assert (one.before, one.resolved) == (("What burned in 1080?",), "What burned in 1744?")


def test_a_switch_is_a_whole_question_after_turns_about_another_article() -> None:
    switches = [each for each in conversations() if each.kind == "switch"]
    assert {each.raw for each in switches} == {each.text for each in QUESTIONS}
    articles = {each.text: each.article for each in QUESTIONS}
    assert all(each.raw == each.resolved for each in switches)
    assert all(articles[before] != each.article for each in switches for before in each.before)


def test_the_same_conversations_are_made_each_time() -> None:
    assert conversations() == conversations()


def test_a_language_without_a_grammar_has_the_kinds_that_need_none() -> None:
    assert {each.kind for each in conversations("ru")} <= {"left out", "switch"}
