"""Index terms by script: known terms, and what holds for every text."""

import sys
import unicodedata

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_rag.analysis.terms import terms_of
from edge_rag.storage.migrations import register_terms

_SCRIPTS = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "aéİıßđơ 19.,' \u00a0٣５，．-²½αάςйёкотشجربـ\u200cहिंदी\u0301\u0323กิ่ำນ့ကخ国語ガｶﾞ가ᄀ\u1161\u11a8ﬁ"
        ),
    ),
    max_size=40,
)


def terms(text: str) -> list[str]:
    return [term for _, _, term in terms_of(text)]


def test_every_combining_mark_belongs_to_its_word() -> None:
    codes = (*range(0xD800), *range(0xE000, sys.maxunicode + 1))
    marks = [chr(code) for code in codes if unicodedata.category(chr(code)).startswith("M")]
    assert len(marks) > 2000
    assert [term[:2] for term in terms_of("a" + "".join(marks) + "b")] == [(0, len(marks) + 2)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The relief VALVES", "the relief valve"),
        ("Öl für die Pümpen", "ol fur die pumpen"),
        ("İstanbul'da ISI", "istanbul'da ısı"),
        ("Łódź, smørre", "Lodz, smorre"),
        ("Der Motor motor-", "der motor Motor"),
        ("насосы", "насосами"),
        ("οι αντλίες", "οι αντλιες"),
        ("المضخة", "مضخة"),
        ("مضخـــة", "مضخة"),
        ("पुस्तकों", "पुस्तक"),
        ("می\u200cخواهم", "میخواهم"),
        ("co\u00adoperate", "cooperate"),
        ("ｶﾞｿﾘﾝ", "ガソリン"),
        ("ＡＢＣ１２", "abc12"),
        ("5kg, 5кг, 5 公斤", "5 kg 5 кг 5kg"),
        ("2.5bar", "2,5 bar"),
    ],
)
def test_texts_that_say_the_same_have_the_same_terms(one: str, other: str) -> None:
    assert terms(one) == terms(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P2 ABC-12345678 3des", ["p2", "abc", "12345678", "3des"]),
        ("má mạ ma", ["ma", "mạ", "ma"]),
        ("油圧泵的压力", ["油圧", "圧泵", "泵的", "的压", "压力"]),
        ("泵", ["泵"]),
        ("第3章 PDF版", ["第", "3", "章", "pdf", "版"]),
        ("น้ำมัน", ["น้ำ", "ำมั", "มัน"]),
        ("हिन्दी", ["हिन्द"]),
        ("펌프의", ["펌프", "프의"]),
        ("v1.2.3 on 2024-05-03", ["v1", "2", "3", "on", "2024", "5", "3"]),
        ("1.234,5 and 1,234.5 and ١٬٢٣٤٫٥", ["1234.5", "and", "1234.5", "and", "1234.5"]),
        ("_a_ \u00ad \u0301", ["a"]),
    ],
)
def test_the_terms_of_a_script(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@settings(deadline=None)
@given(_SCRIPTS)
@example("ที่น้ำ")
@example("e\u0323\u0302 a\u0302\u0323")
def test_normalization_makes_no_difference(text: str) -> None:
    assert terms(text) == terms(unicodedata.normalize("NFC", text)) == terms(unicodedata.normalize("NFD", text))


@settings(deadline=None)
@given(_SCRIPTS)
@example("e\u0301x \U0001f600 ｶﾞ")
def test_a_term_is_found_again_by_the_words_it_stands_at(text: str) -> None:
    """So a question's words may be handed on as they are written."""
    for start, end, term in terms_of(text):
        assert 0 <= start < end <= len(text)
        assert term
        assert term == "".join(term.split())
        assert terms(text[start:end]) == [term]


@settings(deadline=None)
@given(_SCRIPTS)
@example("a\x00b \ud800")
@example("Straße 漢字 هذا")
def test_full_text_finds_a_text_by_each_of_its_words_and_points_at_them_in_bytes(text: str) -> None:
    text = text.replace("\x00", " ").encode("utf-8", "ignore").decode()
    connection = apsw.Connection(":memory:")
    register_terms(connection)
    connection.execute("CREATE VIRTUAL TABLE f USING fts5(text, tokenize='terms')")
    connection.execute("INSERT INTO f VALUES (?)", (text,))
    for start, end, _ in terms_of(text):
        word = text[start:end]
        marked = connection.execute(
            "SELECT highlight(f, 0, '[', ']') FROM f WHERE f MATCH ?", (f'"{word}"',)
        ).fetchall()
        assert [row.replace("[", "").replace("]", "") for (row,) in marked] == [text.replace("[", "").replace("]", "")]
    connection.close()


def test_highlighting_marks_whole_words() -> None:
    connection = apsw.Connection(":memory:")
    register_terms(connection)
    connection.execute("CREATE VIRTUAL TABLE f USING fts5(text, tokenize='terms')")
    connection.execute("INSERT INTO f VALUES ('Größe: 1.234,5 мм насосов, e\u0301te\u0301')")

    query = "SELECT highlight(f, 0, '[', ']') FROM f WHERE f MATCH 'насос OR été OR grosse'"
    marked = connection.execute(query).get

    assert marked == "[Größe]: 1.234,5 мм [насосов], [e\u0301te\u0301]"
    connection.close()
