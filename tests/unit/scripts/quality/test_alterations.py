"""What scripts/measure_attribution writes about passages."""

from __future__ import annotations

import random

import pytest

from scripts.bench.quality import alterations

SENTENCE = "The pump at Marburg was greased after 2000 hours by fitters of the second shift."


@pytest.fixture
def chance() -> random.Random:
    return random.Random(1)


def test_each_alteration_changes_what_it_says_and_nothing_else(chance: random.Random) -> None:
    words = SENTENCE.split()
    assert alterations.itself(SENTENCE, chance) == SENTENCE
    shortened = (alterations.shortened(SENTENCE, chance) or "").split()
    assert shortened == [word for word in words if word in shortened]
    assert shortened[0] == words[0]
    assert len(shortened) < len(words)
    assert alterations.denied(SENTENCE, chance) == SENTENCE.replace("was", "was not")
    for alter, changed in ((alterations.miscounted, "2000"), (alterations.renamed, "Marburg")):
        altered = (alter(SENTENCE, chance) or "").split()
        assert [one for one, other in zip(words, altered, strict=True) if one != other] == [changed]
    reworded = (alterations.reworded(SENTENCE, chance) or "").split()
    assert sum(one != other for one, other in zip(words, reworded, strict=True)) == len(words) // 8


def test_where_there_is_nothing_to_alter_there_is_no_sentence(chance: random.Random) -> None:
    for alter in (alterations.miscounted, alterations.denied, alterations.renamed, alterations.reworded):
        assert alter("Go up now.", chance) is None
    assert alterations.spliced(SENTENCE, "Too short.") is None


def test_halves_are_of_both_sentences() -> None:
    assert alterations.spliced("a b c d e f g h i", "1 2 3 4 5 6 7 8 9 10") == "a b c d 6 7 8 9 10"
