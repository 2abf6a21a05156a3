"""Which words of a question are corrected, and to what."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from edge_rag.analysis.terms import plain_letters, words_of
from edge_rag.retriever.wordings.spelling import MAX_CHARACTERS, allowed_edits, corrected
from tests.unit.retriever.wordings.chunks import Chunks

MANUAL = (
    "The pump bearings must be greased every 2,000 operating hours. Use lithium grease of class 2.",
    "The bearings of the pump motors are greased by the electrician. How much grease is told on the plate.",
    "Check the oil of the standby pump for water each month.",
    "The uninterruptible power supply UPS feeds the control cabinet.",
    "Maintenance of the valves is done by the operator. Close the inlet before the maintenance.",
    "La presión del agua es de 6 bar.",
)


LEXICON = Chunks(MANUAL, familiar=("maintained",))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("how much grese", "how much grease"),
        ("Grese the BEARNGS of the pmp", "Grease the BEARNGS of the pump"),
        ("GRESE THE BEARNGS OF THE PMP", "GREASE THE BEARINGS OF THE PUMP"),
        ("Grese the Bearngs", "Grease the Bearings"),
        ("who cheks the oil for watre", "who check the oil for water"),
        ("main tenance of the valves", "maintenance of the valves"),
        ("oil of the standbypump", "oil of the standby pump"),
        ("presion del agua", "presión del agua"),
        ("¿Qué presion?", "¿Qué presión?"),
        ("maintenence of valves", "maintenance of valves"),
    ],
)
def test_misspelled_words_become_those_of_the_collection(question: str, expected: str) -> None:
    assert corrected(question, LEXICON) == expected


@pytest.mark.parametrize(
    "question",
    [
        "how often are the bearings greased",
        "how often is it maintained and who greases the bearing",
        "grease for the P-1O1 6305-2Z2 x7",
        "what feeds UPSS and USP",
        "Wer schmiert die Lager der Pumpe und wann",
        "Kim bu pompayı ne zaman ve nasıl yağlar",
        "el águá",
        "泵的轴承多久润滑一次",
        "?",
        "",
        "greese " * (MAX_CHARACTERS // 7 + 1),
        "e" * 41,
    ],
)
def test_nothing_is_changed_of_what_is_no_typing_error_of_the_collections_language(question: str) -> None:
    assert corrected(question, LEXICON) is None


def test_a_frequent_word_of_a_language_is_left_alone_unless_all_is_misspelled() -> None:
    lexicon = Chunks(MANUAL, familiar=("wader",))

    assert corrected("is there wader in the oil", LEXICON) == "is there water in the oil"
    assert corrected("is there wader in the oil", lexicon) is None
    assert corrected("chek stndby wader", lexicon) == "check standby water"


def test_the_rest_of_the_question_decides_between_equally_near_words() -> None:
    lexicon = Chunks(("The seal leaks water.", "The seat of the valve is ground.", "The motor is loud."))

    assert corrected("valve seaq", lexicon) == "valve seat"
    assert corrected("water seaq", lexicon) == "water seal"


def test_a_word_two_edits_away_that_is_elsewhere_is_not_meant() -> None:
    lexicon = Chunks(("The seal leaks water.", "The rotor is loud."))

    assert corrected("seal leaks motar", lexicon) is None
    assert corrected("loud motar", lexicon) == "loud rotor"


def test_a_function_word_that_the_collection_lacks_is_no_misspelled_one() -> None:
    lexicon = Chunks(("Die Messen der Stadt Wien und das Land.", "Der Fürst, den er kennt, ist in der Stadt."))

    assert corrected("Wessen Stadt ist das?", lexicon) is None
    assert corrected("Mesen Stadt ist das?", lexicon) == "Messen Stadt ist das?"


def test_a_form_of_a_word_is_found_by_its_stem_where_all_is_misspelled() -> None:
    lexicon = Chunks(("Die Pumpe wird klassifizierend geprüft.", "Der Motor ist laut."))

    assert corrected("Pumqe klüassfiziert", lexicon) == "Pumpe klassifizierend"
    assert corrected("Pumpe klüassfiziert", lexicon) is None


words = st.sampled_from(sorted({word.term for text in MANUAL for word in words_of(text)}))
typed = st.one_of(
    words,
    st.builds(
        lambda word, at, letter: word[:at] + letter + word[at + 1 :], words, st.integers(0, 8), st.sampled_from("aeqx")
    ),
    st.from_regex(r"[a-z]{1,4}[0-9]{1,3}[a-z]{0,2}", fullmatch=True),
    st.text(st.characters(codec="utf-8"), max_size=9),
)


@given(st.lists(words, min_size=1, max_size=10).map(" ".join))
def test_a_word_of_the_collection_is_never_changed(question: str) -> None:
    assert corrected(question, LEXICON) is None


@given(st.lists(typed, max_size=10).map(" ".join))
@example("B OERA")
def test_what_is_changed_are_unknown_words_without_digits_by_at_most_the_allowed_edits(question: str) -> None:
    ours = corrected(question, LEXICON)

    if ours is None:
        return
    known = set(LEXICON.counts({word.term for word in words_of(question)}))
    kept = [word.term for word in words_of(ours)]
    assert known <= set(kept) | {part for word in kept for part in known if part in word}
    with_digits = re.findall(r"\w*\d\w*", question)
    assert re.findall(r"\w*\d\w*", ours) == with_digits
    before = [word.term for word in words_of(question)]
    if len(before) == len(kept):
        changes = [(old, new) for old, new in zip(before, kept, strict=True) if old != new]
        assert changes
        for old, new in changes:
            assert new in LEXICON.counts([new])
            near = OSA.distance(plain_letters(old), plain_letters(new)) <= allowed_edits(old)
            assert near or new in {form.word for form in LEXICON.near_forms(old)}
