from datetime import UTC, date, datetime, timedelta, timezone
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.metadata import (
    MAX_KEYS,
    MAX_METADATA_CHARACTERS,
    MAX_TAGS,
    MAX_TEXT_CHARACTERS,
    decode_metadata,
    encode_metadata,
    usable_metadata,
    validate_metadata,
)
from edge_rag.errors import InvalidRequest

_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_values_are_brought_to_a_normal_form() -> None:
    assert validate_metadata(
        {
            "title": "  A\n title ",
            "name": "Zoe\u0308",
            "year": 2020,
            "draft": False,
            "created": date(2020, 5, 1),
            "modified": datetime(2020, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))),
            "tag": ["a", "b", "a"],
        }
    ) == {
        "title": "A title",
        "name": "Zo\u00eb",
        "year": 2020.0,
        "draft": False,
        "created": datetime(2020, 5, 1, tzinfo=UTC),
        "modified": datetime(2020, 5, 1, 10, tzinfo=UTC),
        "tag": ("a", "b"),
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Year", 2020),
        ("", 1),
        ("a b", 1),
        ("k" * 65, 1),
        ("k\n", 1),
        ("key", None),
        ("key", {"a": 1}),
        ("key", b"bytes"),
        ("key", ""),
        ("key", "\x00"),
        ("key", "\ud800"),
        ("key", "x" * (MAX_TEXT_CHARACTERS + 1)),
        ("key", nan),
        ("key", inf),
        ("key", 2**53 + 1),
        ("key", []),
        ("key", ["a", 1]),
        ("key", [str(n) for n in range(MAX_TAGS + 1)]),
        ("key", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_an_unusable_key_or_value_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate_metadata({"good": 1, key: value})

    assert refused.value.field == f"metadata[{key!r}]"


def test_too_much_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"metadata: has 65 keys"):
        validate_metadata({f"k{number}": 1 for number in range(MAX_KEYS + 1)})
    with pytest.raises(InvalidRequest, match=f"metadata\\['k7'\\].*{MAX_METADATA_CHARACTERS:,} characters"):
        validate_metadata({f"k{number}": "x" * MAX_TEXT_CHARACTERS for number in range(MAX_KEYS)})


@given(st.dictionaries(st.text(max_size=4) | st.sampled_from("abc"), _JUNK))
def test_what_is_usable_of_a_files_own_metadata_is_legal_and_survives_json(found: dict[str, object]) -> None:
    usable = usable_metadata(found)

    assert validate_metadata(usable) == usable
    assert decode_metadata(encode_metadata(usable)) == usable


def test_long_texts_of_files_are_cut_and_the_rest_of_what_is_unusable_left_out() -> None:
    assert usable_metadata({"author": "x" * 10_000, "Bad": 1, "year": 2020}) == {
        "author": "x" * MAX_TEXT_CHARACTERS,
        "year": 2020.0,
    }
