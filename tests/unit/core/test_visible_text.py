import json
import sys
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.visible_text import (
    InvisibleEscaper,
    escape_invisible,
    escape_invisible_json,
    isolate_right_to_left,
)

EVERY = [chr(code) for code in range(sys.maxunicode + 1) if chr(code) != "\n"]
PREPENDED = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
NAMED = [
    *"\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    *"\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u2028\u2029\u3164\u115f\u034f\ufe0f",
    *map(chr, range(0x80, 0xA0)),
    *map(chr, range(0xE0000, 0xE0080)),
    *map(chr, range(0xE0100, 0xE01F0)),
]
HONEST = [
    "می‌خواهم",  # Persian, with a non-joiner
    "क्‍ष श्रीमान्‌को",  # Hindi and Nepali
    "👩‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🚒 ❤️ 1️⃣",
    "葛\U000e0100城",  # a variant of an ideograph
    "\u0600١٢٣ آيه\u06dd",
    "שלום, мир, 世界,안녕, Ünïcödé, a\u0301",
    "1\u00a0000\u2009km\u3000x",
    "tab\tand\nline",
]
texts = st.text(st.characters() | st.sampled_from(NAMED) | st.sampled_from("ab م‌क 👩🏽"), max_size=12)


@cache
def each_shown() -> list[str]:
    return escape_invisible("\n".join(EVERY)).split("\n")


def test_every_code_point_alone_is_seen_or_escaped() -> None:
    for character, text in zip(EVERY, each_shown(), strict=True):
        category = unicodedata.category(character)
        if text == character:
            assert character == "\t" or category[0] in "LMNPS" or category == "Zs" or character in PREPENDED, category
        else:
            assert text.isascii()
            assert text.encode().decode("unicode_escape") == character


def test_every_code_point_in_json_means_the_same_and_is_escaped_alike() -> None:
    value = "\n".join(EVERY)
    text = escape_invisible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    beyond = EVERY.index("\xa0")
    in_json = text.strip('"').split("\\n")[beyond:]
    for character, part, alone in zip(EVERY[beyond:], in_json, each_shown()[beyond:], strict=True):
        assert (part == character) == (alone == character), hex(ord(character))


@pytest.mark.parametrize("character", NAMED, ids=lambda character: f"{ord(character):04x}")
def test_what_cannot_be_seen_is_escaped_beside_latin_text(character: str) -> None:
    assert character not in escape_invisible(f"pay {character}pal")
    assert character not in escape_invisible_json(json.dumps([f"pay {character}pal"], ensure_ascii=False))


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_stays(text: str) -> None:
    assert escape_invisible(text) == text
    escaper = InvisibleEscaper()
    assert "".join(escaper.feed(character) for character in text) + escaper.end() == text


@pytest.mark.parametrize(
    "text",
    [
        "pay\u200dpal",
        "pay\u200cpal",
        "م\u200c",
        "\u200dم",
        "م\u200c\u200cم",
        "👩\u200d",
        "☎\ufe0f\ufe0f",
        " \ufe0f",
        "a\ufe0f",
    ],
)
def test_joiners_and_selectors_elsewhere_are_escaped(text: str) -> None:
    assert escape_invisible(text) != text


@given(texts)
def test_json_keeps_its_value(text: str) -> None:
    shown = escape_invisible_json(json.dumps([text, {text: text}], ensure_ascii=False))
    assert json.loads(shown) == [text, {text: text}]


@given(st.lists(texts, max_size=6))
def test_streamed_text_is_escaped_like_the_whole(parts: list[str]) -> None:
    escaper = InvisibleEscaper()
    assert "".join(map(escaper.feed, parts)) + escaper.end() == escape_invisible("".join(parts))


@given(texts)
def test_what_is_shown_has_nothing_left_to_escape(text: str) -> None:
    shown = escape_invisible(text)
    assert escape_invisible(shown) == shown


@given(texts)
def test_every_letter_from_right_to_left_is_in_an_isolate_and_nothing_else_changes(text: str) -> None:
    shown = isolate_right_to_left(escape_invisible(text))
    assert shown.replace("\u2068", "").replace("\u2069", "") == escape_invisible(text)
    isolates = 0
    for character in shown:
        isolates += {"\u2068": 1, "\u2069": -1}.get(character, 0)
        assert isolates in (0, 1)
        assert isolates or unicodedata.bidirectional(character) not in ("R", "AL")
    assert isolates == 0


def test_a_name_is_one_isolate_and_two_names_are_two() -> None:
    shown = isolate_right_to_left("1. דוח 2023-א.pdf, page 3, also in: می\u200cخواهم, שלום (a)")
    assert shown == "1. \u2068דוח 2023-א\u2069.pdf, page 3, also in: \u2068می\u200cخواهم\u2069, \u2068שלום\u2069 (a)"
