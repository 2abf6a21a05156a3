"""What a follow-up takes over from the turns before it, and what not."""

from collections import Counter
from collections.abc import Mapping
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.analysis.terms import terms_of
from edge_rag.core.limits.request_fields import MAX_TURNS, checked_turns, newest_turns
from edge_rag.core.query import Turn, TurnSource
from edge_rag.retriever.wordings.standalone import MAX_CARRIED_CHARACTERS, MAX_READ_CHARACTERS, standalone

CHUNKS = (
    "The pump bearings must be greased every 2,000 operating hours. Each bearing takes 35 grams of grease.",
    "The gate valves are greased every six months. Check valves need no lubrication.",
    "Fault F07 means that the heat sink is too hot. Fault F03 means a short circuit.",
    "The acceptance certificate was signed by the Coldbrook water authority on 18 May 2020.",
    "The generator takes 18 litres of oil. The oil filter of the generator is on shelf E1.",
    "Die Störung F07 bedeutet, dass der Kühlkörper zu heiß ist. Die Pumpe wird jährlich geprüft.",
    "La estación de bombeo fue construida en 1998. La bomba pesa 900 kilos.",
    "La pompe est graissée tous les trois mois. La vanne est vérifiée chaque année.",
    "Сертификат приёмки подписан в мае. Подшипники насоса смазывают каждые три месяца.",
)


def weigh(text: str) -> Mapping[str, float]:
    counts = Counter(term for chunk in CHUNKS for term in {each.term for each in terms_of(chunk)})
    spoken = {term: text[start:end].lower() for start, end, term in terms_of(text)}
    return {
        term: log((len(CHUNKS) + 1) / (counts[term] + 0.5))
        for term, word in spoken.items()
        if counts[term] and counts[term] <= len(CHUNKS) / 2 and word not in ENGLISH_FUNCTION_WORDS
    }


def turn(question: str, cited: str = "", *above: str) -> Turn:
    return Turn(question, cited, (TurnSource("manual.md", above, cited),) if cited else ())


GREASING = turn("How often must the pump bearings be greased?", CHUNKS[0][:63], "Lubrication", "Pumps")
CERTIFICATE = turn("When was the acceptance certificate signed?", CHUNKS[3], "Commissioning")


@pytest.mark.parametrize(
    ("before", "question", "expected"),
    [
        ("What does fault F07 mean?", "And F03?", "What does fault F03 mean?"),
        ("What does fault F07 mean?", "What about fault F03?", "What does fault F03 mean?"),
        ("What does fault F07 mean?", "No, I meant F03.", "What does fault F03 mean?"),
        ("Who repaired the pump in Coldbrook?", "and in Harrow Lane?", "Who repaired the pump in Harrow Lane?"),
        ("How is the check valve greased?", "No, the gate valve.", "How is the gate valve greased?"),
        (
            "How often must the pump bearings be greased?",
            "What about the generator?",
            "How often must the pump bearings be greased? (generator)",
        ),
        ("Was bedeutet die Störung F07?", "Und F03?", "Was bedeutet die Störung F03?"),
        ("Was bedeutet die Störung F07?", "Nein, ich meinte F03.", "Was bedeutet die Störung F03?"),
        ("¿Cuánto pesa la bomba P2?", "¿Y la P3?", "¿Cuánto pesa la bomba P3?"),
        ("¿Cuánto pesa la bomba P2?", "No, me refería a la P3", "¿Cuánto pesa la bomba P3?"),
        ("Quand la pompe P2 est-elle graissée ?", "Et la pompe P3 ?", "Quand la pompe P3 est-elle graissée ?"),
        ("Quand la pompe P2 est-elle graissée ?", "Non, je voulais dire P3", "Quand la pompe P3 est-elle graissée ?"),
    ],
)
def test_the_question_before_is_asked_about_something_else(before: str, question: str, expected: str) -> None:
    assert standalone(question, [turn(before)], weigh) == expected


@pytest.mark.parametrize(
    ("before", "question", "carried"),
    [
        ("How often must the pump bearings be greased?", "How much do they take?", "pump bearings"),
        ("How often must the pump bearings be greased?", "Why?", "pump bearings"),
        ("How often must the pump bearings be greased?", "Why is that?", "pump bearings"),
        ("Was bedeutet die Störung F07?", "Warum?", "Störung F07"),
        ("Was bedeutet die Störung F07?", "Wie wird sie behoben?", "Störung F07"),
        ("¿Quién construyó la estación Coldbrook?", "¿Cuándo?", "Coldbrook"),
        ("¿Quién construyó la estación Coldbrook?", "¿Cuál es su dirección?", "Coldbrook"),
        ("Quand la pompe Coldbrook est-elle graissée ?", "Pourquoi ?", "Coldbrook"),
        ("Quand la pompe Coldbrook est-elle graissée ?", "Où est-elle ?", "Coldbrook"),
        ("Как часто смазывают подшипники насоса?", "Почему?", "подшипники насоса"),
    ],
)
def test_pronouns_and_short_questions_get_what_the_question_before_was_about(
    before: str, question: str, carried: str
) -> None:
    found = standalone(question, [turn(before)], weigh)
    assert found is not None
    assert found.startswith(f"{question} (")
    assert carried in found


def test_what_a_pronoun_stands_for_reaches_the_third_turn() -> None:
    turns = [GREASING, turn("How much do they take?", "Each bearing takes 35 grams of grease.")]
    found = standalone("Why?", turns, weigh)
    assert found is not None
    assert "pump bearings" in found


def test_a_name_of_the_answer_can_be_what_is_meant() -> None:
    found = standalone("Where are they?", [CERTIFICATE], weigh)
    assert found is not None
    assert "Coldbrook" in found


@pytest.mark.parametrize(
    "question",
    [
        "When was the acceptance certificate signed?",
        "How many litres of oil does the generator take?",
        "Wann wird die Pumpe auf den Kühlkörper geprüft?",
        "Когда подписан сертификат приёмки?",
    ],
)
def test_a_question_about_something_else_gets_nothing(question: str) -> None:
    assert standalone(question, [GREASING], weigh) is None


def test_nothing_is_carried_from_before_a_new_topic() -> None:
    found = standalone("Who has it?", [GREASING, CERTIFICATE], weigh)
    assert found is not None
    assert "certificate" in found
    assert "bearings" not in found


@pytest.mark.parametrize(
    "question", ["How often must the pump bearings be greased?", "how often are pump bearings greased, and is it much?"]
)
def test_a_question_that_holds_all_of_the_one_before_gets_nothing_of_it(question: str) -> None:
    assert standalone(question, [turn("How often must the pump bearings be greased?")], weigh) is None


def test_a_question_without_turns_stands_alone() -> None:
    assert standalone("Why?", [], weigh) is None


def test_a_long_question_stands_alone() -> None:
    assert standalone("Why? " + "x" * MAX_READ_CHARACTERS, [GREASING], weigh) is None


def test_a_question_that_begins_with_no_is_no_correction() -> None:
    found = standalone("No grease?", [turn("What does fault F07 mean?")], weigh)
    assert found is None or found.startswith("No grease?")


SPOKEN = "it they that why how what and no, about I meant sie warum nein y él et pourquoi (x) a's 2. 水箱每年 ? \x01"
WORDS = st.sampled_from([*" ".join(CHUNKS).split(), *SPOKEN.split(" "), "\n"])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
LONG = st.one_of(TEXTS, st.text(max_size=40), TEXTS.map(lambda text: text * 30))
TURNS = st.builds(
    lambda question, cited, above: Turn(question or "?", cited, (TurnSource(above, (above,), cited),)),
    LONG,
    LONG,
    TEXTS,
)


@given(LONG, st.lists(TURNS, max_size=3))
def test_what_is_added_is_bounded_and_from_the_conversation(question: str, turns: list[Turn]) -> None:
    found = standalone(question, turns, weigh)
    if found is None:
        return
    assert found.strip()
    longest = max(len(question), *(len(each.question) for each in turns))
    assert len(found) <= longest + len(question) + (len(turns) + 1) * MAX_CARRIED_CHARACTERS
    spoken = "\n".join((question, *(text for each in turns for text in each.texts())))
    known = {each.term for each in terms_of(spoken)}
    assert {each.term for each in terms_of(found)} <= known


@given(TEXTS, st.lists(TURNS, min_size=1, max_size=2))
def test_a_question_does_not_get_what_it_has(question: str, turns: list[Turn]) -> None:
    everything = " ".join((question, *(text for each in turns for text in each.texts())))
    assert standalone(everything, turns, weigh) in (None, everything)


@given(st.lists(st.sampled_from(CHUNKS), min_size=1, max_size=2 * MAX_TURNS), st.sampled_from(CHUNKS[:5]))
def test_as_many_turns_are_read_as_a_request_may_have(asked: list[str], question: str) -> None:
    turns = [Turn(text.partition(".")[0] + "?", text) for text in asked]
    read: list[str] = []

    def counting(text: str) -> Mapping[str, float]:
        read.append(text)
        return weigh(text)

    found = standalone(f"And {question.split()[1]}?", turns, counting)

    may_have = newest_turns(turns)
    assert checked_turns("turns", turns[-MAX_TURNS:], 8_192) == tuple(turns[-MAX_TURNS:])
    assert all(turn.question in read[0] for turn in may_have)
    assert found == standalone(f"And {question.split()[1]}?", turns[-MAX_TURNS:], weigh)
