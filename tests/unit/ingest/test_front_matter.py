from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.metadata import validate_metadata
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.text.markdown import take_front_matter


def test_values_are_read_as_their_author_meant_them() -> None:
    metadata, rest = take_front_matter(
        "---\n"
        "title: 1984\n"
        "Author: 'Zoë'\n"
        "country: NO\n"
        "Part Number: 007\n"
        "year: 2020\n"
        "pressure: 3.5\n"
        "start: 12:30\n"
        "draft: false\n"
        "created: 2020-05-01\n"
        "modified: 2020-05-01T12:00:00+02:00\n"
        "due: 2020-13-45\n"
        "isbn: 99999999999999999999\n"
        "tags: [pump, 10, 'true']\n"
        "empty:\n"
        "nothing: []\n"
        "menu:\n  main:\n    weight: 3\n"
        "summary: >\n  two\n  lines\n"
        "---\n"
        "text\n"
    )

    assert metadata == {
        "title": "1984",
        "author": "Zoë",
        "country": "NO",
        "part_number": "007",
        "year": 2020.0,
        "pressure": 3.5,
        "start": "12:30",
        "draft": False,
        "created": datetime(2020, 5, 1, tzinfo=UTC),
        "modified": datetime(2020, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))),
        "due": "2020-13-45",
        "isbn": "99999999999999999999",
        "tags": ("pump", "10", "true"),
        "menu.main.weight": 3.0,
        "summary": "two lines",
    }
    assert rest == "text\n"


@pytest.mark.parametrize(
    "text",
    [
        "no fence\n---\n",
        "---\nnever closed\n",
        "---\nonly words\n---\nmore\n",
        "---\n- a\n- list\n---\n",
        "---\na: b: c\n---\n",
        "---\n{unclosed\n---\n",
        '---\na: "\\UFFFFFFFF"\n---\n',
        "---\na: " + "x" * 70_000 + "\n---\n",
    ],
)
def test_what_is_no_front_matter_stays_text(text: str) -> None:
    assert take_front_matter(text) == ({}, text)


@pytest.mark.parametrize(
    ("front_matter", "reason"),
    [
        ("a: &x [1]\nb: *x", r"alias \(\*x\)"),
        ("a: &a [lol]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]", "alias"),
        ("a: !!python/object/apply:os.system [ls]", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("a: " + "[" * 9 + "]" * 9, "deeper than 8"),
        ("a: " + "[" * 30_000, "deeper than 8"),
        ("a: [" + "1," * 5000 + "]", "more than 4,096"),
        ("schlüssel: 1", r"metadata\['schlüssel'\].*a key is"),
        ("authors: [{name: a}]", r"metadata\['authors'\].*plain values"),
        ("a: [[1]]", r"metadata\['a'\].*plain values"),
        ("[a, b]: 1", "a key is"),
        ("a: 1\nA: 2", "'a' twice"),
        ('a: "\\0"', r"metadata\['a'\].*control characters"),
        ("a: " + "x" * 5000, r"metadata\['a'\].*5,000 characters"),
        ("\n".join(f"k{n}: 1" for n in range(65)), "65 keys"),
    ],
)
def test_hostile_or_unusable_front_matter_is_refused_by_name(front_matter: str, reason: str) -> None:
    with pytest.raises(BrokenDocument, match=reason):
        take_front_matter(f"---\n{front_matter}\n---\ntext\n")


@given(st.text(alphabet="ab:-[]{}&*!|>'\"\\ \n#?%@,.0é", max_size=80))
def test_any_front_matter_is_taken_refused_or_text(front_matter: str) -> None:
    source = f"---\n{front_matter}\n---\ntext\n"
    try:
        metadata, rest = take_front_matter(source)
    except BrokenDocument:
        return
    assert validate_metadata(metadata) == metadata
    assert source.endswith(rest)
    assert rest == source or rest.endswith("text\n")


def test_front_matter_becomes_a_documents_metadata_and_title() -> None:
    _, parsed = read_document("a.md", "", b"---\ntitle: Pump\nyear: 2020\n---\n# Heading\n\ntext\n", ParsingLimits())

    assert parsed.title == "Pump"
    assert parsed.metadata == {"title": "Pump", "year": 2020.0}
    assert parsed.text == "Heading\n\ntext"
