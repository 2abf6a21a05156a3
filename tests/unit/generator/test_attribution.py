import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.text import sentence_spans
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.claims import claims_of
from edge_rag.generator.citations.sentence_splitter import SentenceSplitter
from edge_rag.reranker.scoring import Stemmer
from tests.support.generators import ranked

PUMP = "The pump bearings must be greased every 2,000 operating hours. Use lithium grease only. Pump P1 takes 35 grams."
VALVE = "Never open the check valve under pressure. Shut the suction valve first, then wait 15 minutes."
AGAIN = "Both pump bearings are greased every 2,000 operating hours by the fitter."


PASSAGES = [ranked(number, text) for number, text in enumerate((PUMP, VALVE, AGAIN))]
ATTRIBUTOR = Attributor(PASSAGES, Stemmer())


def support(sentence: str, *marked: int) -> list[str]:
    found = ATTRIBUTOR.support(sentence, marked)
    return [PASSAGES[place.passage].passage.text[place.start : place.end] for place in found]


def test_a_sentence_is_supported_by_one_with_the_same_claims() -> None:
    assert support("Pump bearings are to be greased every 2000 hours.") == [sentence(PUMP, 0)]
    assert support("The suction valve is shut first.") == [sentence(VALVE, 1)]


def sentence(text: str, place: int) -> str:
    start, end = sentence_spans(text)[place]
    return text[start:end]


@pytest.mark.parametrize(
    "claim",
    [
        "The pump bearings must be greased every 4,000 operating hours.",
        "The pump bearings must be greased every 2,000 days.",
        "The pump bearings must not be greased every 2,000 operating hours.",
        "Open the check valve under pressure.",
        "Never shut the suction valve, then wait 15 minutes.",
        "Pump P2 takes 35 grams.",
        "Hale greases the pump bearings every 2,000 operating hours.",
        "The pump bearings of Hale must be greased every 2,000 operating hours.",
        "The moon is made of cheese.",
        "Yes.",
        "15.",
        "",
    ],
)
def test_a_claim_that_is_not_in_the_passages_has_no_support(claim: str) -> None:
    assert support(claim) == []


def test_two_consecutive_sentences_support_a_claim_together() -> None:
    assert support("Use lithium grease only, 35 grams for P1.") == [sentence(PUMP, 1), sentence(PUMP, 2)]


def test_a_number_of_one_thing_does_not_support_a_sentence_about_another() -> None:
    texts = "Pump P1 needs 5 litres of oil. Pump P2 needs 8 litres of oil."
    attributor = Attributor([ranked(0, texts)], Stemmer())
    assert attributor.support("Pump P1 needs 5 litres of oil.")
    assert attributor.support("Pump P1 needs 8 litres of oil.") == ()


def test_a_negation_is_not_assigned_to_one_of_two_sentences() -> None:
    attributor = Attributor([ranked(0, "The pump bearing is greased. The pump bearing is not cooled.")], Stemmer())
    assert attributor.support("The pump bearing is not cooled.")
    assert attributor.support("The pump bearing is not greased.") == ()


def test_a_marker_decides_only_between_passages_that_support_the_sentence() -> None:
    claim = "Pump bearings are greased every 2,000 operating hours."
    assert support(claim, 0) == [sentence(PUMP, 0)]
    assert support(claim, 2) == [AGAIN]
    assert support(claim, 1) == support(claim)
    assert support(claim, 99) == support(claim)


def test_a_sentence_of_a_passage_supports_itself() -> None:
    for number, one in enumerate(PASSAGES):
        for each in one.sentences:
            text = one.passage.text[each.start : each.end]
            assert text in support(text, number)


VOCABULARY = """
pump P1 P2 bearings greased every 2,000 2 hours days Hale not open valve never 35 grams lithium Use The
"""
WORDS = st.lists(st.sampled_from(VOCABULARY.split()), max_size=10)


@given(WORDS, st.lists(WORDS, max_size=6))
def test_a_citation_contains_every_number_and_name_and_as_many_negations(
    claim: list[str], texts: list[list[str]]
) -> None:
    passages = [ranked(number, f"{' '.join(text)}. {' '.join(reversed(text))}.") for number, text in enumerate(texts)]
    written = " ".join(claim)
    found = Attributor(passages, Stemmer()).support(written, [0])
    if found:
        assert len({place.passage for place in found}) == 1
        cited = " ".join(passages[place.passage].passage.text[place.start : place.end] for place in found)
        claimed, claims = claims_of(written), claims_of(cited)
        numbers = {quantity.number for quantity in claims.loose}
        assert all(numbers & {quantity.number for quantity in readings} for readings in claimed.quantities)
        assert claimed.names <= claims.words
        assert claimed.negations == claims.negations


def test_a_number_that_may_be_two_has_the_support_of_the_document_that_means_it() -> None:
    german = ranked(0, "Der Spalt misst 0,5 mm. Die Laufzeit beträgt 1.234 h.")
    english = ranked(1, "The gap is 0.5 mm. Die Laufzeit beträgt 1.234 h.")
    attributor = Attributor([english, german], Stemmer())

    assert [place.passage for place in attributor.support("Die Laufzeit beträgt 1234 h.")] == [1]
    assert [place.passage for place in attributor.support("Die Laufzeit beträgt 1.234 h.")] == [0]


GREASING = "How often must the pump bearings be greased?"


@pytest.mark.parametrize(
    "answer", ["Every 2,000 operating hours.", "2,000", "2000 hours", "The bearings must be greased each 2,000 hours."]
)
def test_a_short_answer_is_supported_by_a_sentence_about_the_question(answer: str) -> None:
    assert Attributor(PASSAGES, Stemmer(), GREASING).support(answer) in [
        ATTRIBUTOR.support(sentence(PUMP, 0)), ATTRIBUTOR.support(AGAIN, [2]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "answer", ["15 minutes", "15", "Lithium grease.", "The suction valve", "P1", "3,000 hours", "Hale"]
)
def test_a_short_answer_has_no_support_by_a_sentence_about_something_else(answer: str) -> None:
    assert Attributor(PASSAGES, Stemmer(), GREASING).support(answer) == ()


def test_repeating_the_question_is_no_answer() -> None:
    attributor = Attributor(PASSAGES, Stemmer(), "Which grease do the pump bearings of Hale use?")
    assert attributor.support("The pump bearings of Hale use grease.") == ()


@pytest.mark.parametrize(
    "text",
    [
        "The answer to this question is: 1830",
        'The answer is "1830',
        "2) The answer is: 1830",
        "the final answer is:1830",
    ],
)
def test_a_phrase_that_announces_the_answer_claims_nothing(text: str) -> None:
    splitter = SentenceSplitter()
    (only,) = [*splitter.feed(text), *splitter.flush(complete=True)]
    assert only.text == text
    assert only.claim.strip('"') == "1830"


def test_an_answer_is_not_taken_for_an_announcement() -> None:
    splitter = SentenceSplitter()
    (only,) = [*splitter.feed("The answer is not in the manual."), *splitter.flush(complete=True)]
    assert only.claim == only.text
