"""Numbers in which an answer and the passages differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.generator.citations.attribution import Attributor, Conflict
from edge_rag.reranker.scoring import Stemmer
from tests.support.generators import ranked

NEW = "The pump bearings must be greased every 46 days. Use 35 g of grease for pump P1. The tank holds 4 sieves."
OLD = "The pump bearings must be greased every 64 days. The motor was built in 1998. Wait 15 minutes or 20 minutes."
QUESTION = "How often must the pump bearings be greased?"


def conflict(sentence: str, *texts: str, question: str = "") -> Conflict | None:
    passages = [ranked(number, text) for number, text in enumerate(texts)]
    return Attributor(passages, Stemmer(), question).find(sentence).conflict


@pytest.mark.parametrize(
    ("sentence", "claimed", "stated"),
    [
        ("The pump bearings must be greased every 90 days.", "90 days", "46 days"),
        ("Pump bearings are greased every ninety days.", "ninety days", "46 days"),
        ("Use 53 g of grease for pump P1.", "53 g", "35 g"),
        ("The tank holds 6 sieves.", "6 sieves", "4 sieves"),
        ("The tank holds six sieves.", "six sieves", "4 sieves"),
    ],
)
def test_a_number_that_differs_is_named_as_both_texts_have_it(sentence: str, claimed: str, stated: str) -> None:
    found = conflict(sentence, NEW)
    assert found is not None
    assert (found.claimed, found.stated) == (claimed, stated)


@pytest.mark.parametrize(
    "sentence",
    [
        "The pump bearings must be greased every 46 days.",
        "The pump bearings must be greased every 90 hours.",
        "The pump bearings must not be greased every 90 days.",
        "The valve must be opened every 90 days.",
        "Use 53 g of grease for pump P2.",
        "The pump bearings must be greased every 90 days with 12 g.",
        "The pump bearings must be greased.",
        "",
    ],
)
def test_no_number_is_named_where_it_is_not_clear_that_the_two_are_of_the_same_thing(sentence: str) -> None:
    assert conflict(sentence, NEW) is None


def test_of_two_numbers_that_could_be_meant_none_is_named() -> None:
    assert conflict("Wait 30 minutes.", OLD) is None


def test_a_year_is_compared_with_a_year() -> None:
    found = conflict("The motor was built in 1889.", OLD)
    assert found is not None
    assert (found.claimed, found.stated) == ("1889", "1998")


def test_a_supported_number_is_compared_with_the_other_passages() -> None:
    found = conflict("The pump bearings must be greased every 46 days.", NEW, OLD)
    assert found is not None
    assert (found.claimed, found.stated, found.place.passage) == ("46 days", "64 days", 1)
    assert conflict("The pump bearings must be greased every 46 days.", NEW, NEW) is None


def test_a_supported_number_is_not_compared_with_that_of_another_thing() -> None:
    other = "The fan bearings of the cooling tower must be greased every 64 days."
    assert conflict("The pump bearings must be greased every 46 days.", NEW, other) is None


@pytest.mark.parametrize("answer", ["90 days", "Every 90 days.", "It is every ninety days."])
def test_a_short_answer_is_compared_by_its_question(answer: str) -> None:
    found = conflict(answer, NEW, question=QUESTION)
    assert found is not None
    assert found.stated == "46 days"
    assert conflict(answer, NEW, question="Who invented the telephone?") is None


WORDS = st.sampled_from(("pump", "P1", "46", "64", "days", "g", "not", "is", "every", "-", "€", "12,5", "one", "in"))


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_what_is_named_stands_in_both_texts_and_differs(sentence: str) -> None:
    found = conflict(sentence, NEW, OLD, "Every pump is 12.5 g in 64 days.")
    if found is not None:
        text = (NEW, OLD, "Every pump is 12.5 g in 64 days.")[found.place.passage]
        assert found.claimed in sentence
        assert found.stated in text[found.place.start : found.place.end]
        assert found.claimed != found.stated


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_a_sentence_does_not_contradict_itself(sentence: str) -> None:
    assert conflict(sentence, sentence) is None
