"""Which words of a question are corrected, and to what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from edge_rag.analysis.terms import plain_letters, word_term, words_of
from edge_rag.retriever.wordings.spelling import MAX_CHARACTERS, Near, allowed_edits, corrected

MANUAL = (
    "The pump bearings must be greased every 2,000 operating hours. Use lithium grease of class 2.",
    "The bearings of the pump motors are greased by the electrician. How much grease is told on the plate.",
    "Check the oil of the standby pump for water each month.",
    "The uninterruptible power supply UPS feeds the control cabinet.",
    "Maintenance of the valves is done by the operator. Close the inlet before the maintenance.",
    "La presión del agua es de 6 bar.",
)


class Chunks:
    """A lexicon of a few chunks."""

    def __init__(self, texts: Sequence[str], familiar: Collection[str] = ()) -> None:
        self._texts = [[word.term for word in words_of(text)] for text in texts]
        self._counts = Counter(word for text in self._texts for word in set(text))
        self._familiar = familiar

    @property
    def chunks(self) -> int:
        return len(self._texts)

    def counts(self, words: Collection[str]) -> Mapping[str, int]:
        return {word: self._counts[word] for word in words if word in self._counts}

    def term_counts(self, words: Collection[str]) -> Mapping[str, int]:
        terms = [set(map(word_term, text)) for text in self._texts]
        return {word: sum(word_term(word) in each for each in terms) for word in words}

    def near(self, word: str, edits: int) -> Sequence[Near]:
        distances = {each: OSA.distance(plain_letters(word), plain_letters(each)) for each in self._counts}
        return [Near(each, distance, self._counts[each]) for each, distance in distances.items() if distance <= edits]

    def together(self, words: Sequence[str]) -> Iterable[Collection[int]]:
        return [{place for place, word in enumerate(words) if word in text} for text in self._texts]

    def has_phrase(self, words: Sequence[str]) -> bool:
        return any(" ".join(words) in " ".join(text) for text in self._texts)

    def is_familiar(self, word: str) -> bool:
        return word in self._familiar


LEXICON = Chunks(MANUAL)


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


def _with_letter(word: str, at: int, letter: str) -> str:
    return word[:at] + letter + word[at + 1 :]


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
            assert OSA.distance(plain_letters(old), plain_letters(new)) <= allowed_edits(old)
