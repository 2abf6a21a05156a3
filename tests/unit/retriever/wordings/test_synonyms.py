"""Synonyms: how lines are read, and which wordings a question gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.synonyms import MAX_PHRASES, MAX_SYNONYMS_CHARACTERS, parse_synonyms
from edge_rag.errors import InvalidRequest
from edge_rag.retriever.wordings.synonyms import MAX_EXPANDED, Expansion, expand, read_synonyms
from tests.unit.retriever.wordings.chunks import Chunks

LEXICON = Chunks(
    (
        "The uninterruptible power supply feeds the control cabinet.",
        "Backup power comes from the generator. The UPS is tested monthly.",
        "The impeller is made of bronze. 泵的轴承每年润滑。",
    )
)
TEXT = """
# names of the site
UPS = uninterruptible power supply, backup power   # both are used
screw = impeller
whatsit = flux capacitor
马达 = 轴承
"""


def test_lines_are_phrases_with_comments_and_white_space_removed() -> None:
    assert parse_synonyms("settings.synonyms", TEXT) == (
        ("UPS", "uninterruptible power supply", "backup power"),
        ("screw", "impeller"),
        ("whatsit", "flux capacitor"),
        ("马达", "轴承"),
    )
    assert parse_synonyms("settings.synonyms", "") == ()
    assert parse_synonyms("settings.synonyms", "#\r\n  a\t b = c\r\n") == (("a b", "c"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = b\n\nc", "line 3 is not PHRASE = PHRASE"),
        ("a = b = c", "line 1 is not"),
        ("a = ", "line 1 has a phrase without a letter or digit"),
        ("a = b,,c", "line 1 has a phrase without"),
        ("a = A", "line 1 has a phrase twice"),
        ("a = " + "b" * 101, "line 1 has a phrase of 101 characters"),
        ("a = " + ",".join(f"b{number}" for number in range(MAX_PHRASES)), "line 1 has 9 phrases"),
        ("a = b\x00c", "line 1 has control characters"),
        ("#" * (MAX_SYNONYMS_CHARACTERS + 1), "at most 16,384 characters, has 16,385"),
    ],
)
def test_a_line_that_is_not_understood_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=r"settings\.synonyms") as refused:
        parse_synonyms("settings.synonyms", text)
    assert problem in str(refused.value)


@given(st.text(st.sampled_from("ab ,=#\n\r\t\0é泵\u2028"), max_size=60))
def test_any_text_is_read_or_refused_and_what_is_read_is_bounded(text: str) -> None:
    try:
        groups = parse_synonyms("settings.synonyms", text)
    except InvalidRequest as refused:
        assert "line " in str(refused)
        return
    for group in groups:
        assert 2 <= len(group) <= MAX_PHRASES
        assert all(phrase == " ".join(phrase.split()) and "#" not in phrase for phrase in group)
    assert parse_synonyms("settings.synonyms", "\n".join(f"{a} = {', '.join(rest)}" for a, *rest in groups)) == groups
    for phrase in (phrase for group in groups for phrase in group):
        expand(f"{phrase} {phrase}", read_synonyms(text), LEXICON)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "Is the UPS tested?",
            Expansion(None, ("Is the uninterruptible power supply tested?", "Is the backup power tested?")),
        ),
        (
            "Uninterruptible power supplies, where?",
            Expansion(None, ("UPS, where?", "backup power, where?")),
        ),
        ("of what is the screw made", Expansion("of what is the impeller made", ())),
        ("of what is the impeller made", Expansion()),
        ("马达多久润滑一次", Expansion("轴承多久润滑一次", ())),
        ("where is the whatsit", Expansion()),
        ("power supply of the cabinet", Expansion()),
    ],
)
def test_a_phrase_is_replaced_by_those_that_the_collection_has(question: str, expected: Expansion) -> None:
    assert expand(question, read_synonyms(TEXT), LEXICON) == expected


def test_the_number_of_wordings_is_bounded() -> None:
    synonyms = read_synonyms("ups = backup, power, supply, generator, cabinet, bronze")

    assert len(expand("ups", synonyms, LEXICON).expanded) == MAX_EXPANDED
