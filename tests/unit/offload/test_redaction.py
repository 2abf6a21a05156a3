import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import ConfigurationError
from edge_rag.offload.generation.redaction import Redactor, Restorer

NUMBERS = Redactor([r"\d{3,}", r"[A-Z][a-z]+ Street"])
TEXTS = st.text(alphabet="ab 123<>P[]Mé\nain Stret", max_size=60)


def cut(text: str, at: list[int]) -> list[str]:
    ends = sorted({min(end, len(text)) for end in at} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def restored(restorer: Restorer, pieces: list[str]) -> str:
    return "".join(map(restorer.feed, pieces)) + restorer.flush()


def test_a_value_has_one_placeholder_in_all_texts_of_a_request() -> None:
    redaction = NUMBERS.begin(["call 12345 or 678", "12345 Main Street"])
    assert redaction.redact("call 12345 or 678") == "call <<P1>> or <<P2>>"
    assert redaction.redact("12345 Main Street") == "<<P1>> <<P3>>"


@given(TEXTS)
def test_no_match_is_left(text: str) -> None:
    redacted = NUMBERS.begin([text]).redact(text)
    for match in re.finditer(r"[0-9]{3,}|[A-Z][a-z]+ Street", text):
        assert match[0] not in redacted


@given(TEXTS, st.lists(st.integers(0, 80), max_size=12))
def test_restoring_gives_the_original_text_for_any_chunking(text: str, at: list[int]) -> None:
    redaction = NUMBERS.begin([text])
    redacted = redaction.redact(text)
    assert restored(redaction.restorer(), cut(redacted, at)) == text


@given(TEXTS, st.text(alphabet="<>P12 x", max_size=40), st.lists(st.integers(0, 80), max_size=12))
def test_other_text_of_a_reply_is_unchanged_for_any_chunking(text: str, reply: str, at: list[int]) -> None:
    redaction = NUMBERS.begin([text])
    redaction.redact(text)
    whole = restored(redaction.restorer(), [reply])
    assert restored(redaction.restorer(), cut(reply, at)) == whole
    if "<<P" not in reply:
        assert whole == reply


def test_a_text_that_contains_a_placeholder_keeps_it() -> None:
    text = "see <<P1>> and 12345"
    redaction = NUMBERS.begin([text])
    assert redaction.redact(text) == "see <<P1>> and <<PP1>>"
    assert restored(redaction.restorer(), ["see <<P1>> and <<P", "P1>>"]) == text


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "a*", "", "(?=x)"])
def test_an_invalid_pattern_or_one_that_matches_the_empty_text_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=r"offload\.redact"):
        Redactor([pattern])


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    text = "a" * 50_000 + "!"
    assert Redactor(["(a+)+$"]).begin([text]).redact(text) == text
