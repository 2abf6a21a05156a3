"""The table of answers by mode: its arithmetic, and which questions are asked."""

from __future__ import annotations

import pytest

from scripts.bench.quality.answer_quality import Articles, Asked
from scripts.bench.quality.modes import Given, chosen, contains, f1, summarize


def given(text: str, reason: str = "stop", document: str = "a.txt", cites: str = "", unsupported: int = 0) -> Given:
    cited = ((cites, "text"),) if cites else ()
    return Given("cite", "how many?", document, ("35 grams",), text, cited, unsupported, 0, reason, True, 1.0)


@pytest.mark.parametrize(
    ("text", "share"),
    [("35 grams", 1.0), ("It takes 35 grams.", 2 / 3), ("The 35-grams", 1.0), ("none", 0.0), ("", 0.0)],
)
def test_f1_is_of_words_without_articles_and_punctuation(text: str, share: float) -> None:
    assert f1(text, ("35 grams", "a kilo")) == pytest.approx(share)


def test_an_accepted_text_is_contained_word_by_word() -> None:
    assert contains("P1 takes 35 grams.", ("35 grams",))
    assert not contains("P1 takes 135 grams.", ("35 grams",))


def test_a_mode_is_judged_over_all_its_questions() -> None:
    answers = [
        given("P1 takes 35 grams.", cites="a.txt"),
        given("Some grams.", cites="b.txt", unsupported=1),
        given("could not: 35 grams", "not_found", cites="a.txt"),
        given("not found", "not_found"),
        given("not found", "not_found", document=""),
        given("The passages have no information.", document="", cites="a.txt"),
    ]
    row = summarize("cite", answers)
    assert (row.answerable, row.unanswerable) == (4, 2)
    assert (row.gold, row.cited, row.right, row.unsupported, row.not_found) == (0.25, 0.5, 0.25, 0.25, 0.5)
    assert (row.refused, row.refused_in_words, row.cited_anyway) == (0.5, 0.5, 0.5)
    assert summarize("free", answers).answerable == 0


def test_questions_of_every_fourth_article_have_no_document() -> None:
    documents = tuple({f"{number}.txt": f"text {number}"} for number in range(8))
    questions = tuple(Asked(f"q{number}", number, f"{number}.txt", ("x",)) for number in range(8))
    ingested, asked = chosen(Articles(documents, questions), 100, 1)
    assert sorted(ingested) == ["0.txt", "1.txt", "2.txt", "4.txt", "5.txt", "6.txt"]
    assert [each.text for each, answerable in asked if answerable] == ["q0", "q1", "q2", "q4", "q5", "q6"]
    assert [each.text for each, answerable in asked if not answerable] == ["q3"]
