from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.client import CallStatus, ClientError, parse_filter
from edge_rag.core.documents.filters import (
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)
from edge_rag.errors import InvalidRequest
from edge_rag.wire.metadata import filter_to_message, parse_filter_message

_YEAR, _TAG, _NAME = MetadataField("year"), MetadataField("tag"), BuiltinField.NAME
_NEW = Comparison(_YEAR, Comparator.GREATER_OR_EQUAL, 2020.0)
_PUMP = Comparison(_TAG, Comparator.EQUAL, "pump")
_SEAL = Comparison(_TAG, Comparator.EQUAL, "seal")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year >= 2020", _NEW),
        ("year>=2020", _NEW),
        ("meta.year >= 2.02e3", _NEW),
        (
            'year >= 2020 and tag in ("a","b") and name ~ "pump*"',
            AllOf((_NEW, OneOf(_TAG, ("a", "b")), Prefix(_NAME, "pump"))),
        ),
        ("tag = \"pump\" or tag == 'seal' and year >= 2020", AnyOf((_PUMP, AllOf((_SEAL, _NEW))))),
        ('(tag = "pump" or tag = "seal") and year >= 2020', AllOf((AnyOf((_PUMP, _SEAL)), _NEW))),
        ('NOT tag = "pump" AND year >= 2020', AllOf((Negated(_PUMP), _NEW))),
        ('not (tag = "pump" and year >= 2020)', Negated(AllOf((_PUMP, _NEW)))),
        ('tag != "pump"', Negated(_PUMP)),
        ("year not in (1, 2)", Negated(OneOf(_YEAR, (1.0, 2.0)))),
        ("has year", Present(_YEAR)),
        ('tag ~ "*"', Present(_TAG)),
        ("draft = true", Comparison(MetadataField("draft"), Comparator.EQUAL, True)),
        ("notes = false", Comparison(MetadataField("notes"), Comparator.EQUAL, False)),
        ("page < 3", Comparison(BuiltinField.PAGE, Comparator.LESS, 3.0)),
        ("meta.page < 3", Comparison(MetadataField("page"), Comparator.LESS, 3.0)),
        ("meta.meta.x > -1", Comparison(MetadataField("meta.x"), Comparator.GREATER, -1.0)),
        ("has meta.and", Present(MetadataField("and"))),
        (
            "ingested_at > 2020-05-01",
            Comparison(BuiltinField.INGESTED_AT, Comparator.GREATER, datetime(2020, 5, 1, tzinfo=UTC)),
        ),
        (
            "created <= 2020-05-01T10:00:00+02:00",
            Comparison(MetadataField("created"), Comparator.LESS_OR_EQUAL, datetime(2020, 5, 1, 8, tzinfo=UTC)),
        ),
        (r'tag = "say \"é\\"', Comparison(_TAG, Comparator.EQUAL, 'say "é\\')),
    ],
)
def test_a_filter_is_read_as_it_is_meant(text: str, expected: Filter) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 1, "ends here"),
        ("year >=", 8, "ends here; expected a date"),
        ("year >= pump", 9, "expected .*a text in quotes"),
        ("year = 1 tag = 2", 10, "expected and, or or the end"),
        ("year in ()", 10, "expected"),
        ("year in (1", 11, r"expected \) or a comma"),
        ("Year = 1", 1, "a key is"),
        ('tag ~ "pump"', 7, r"one \* at its end"),
        ('tag ~ "p*p*"', 7, r"one \* at its end"),
        ("tag ~ 3", 7, "expected a text in quotes"),
        ('tag = "x', 7, "expected"),
        ("created > 2020-13-01", 11, "is not a date"),
        ("(a = 1", 7, r"expected \)"),
        ("a = 1)", 6, r"expected"),
        ("a & b", 3, "expected"),
        (r'a = "\q"', 5, "double quotes"),
        ("a = 1 and\n b = ?", 16, "expected"),
    ],
)
def test_an_error_names_what_was_expected_and_points_at_the_character(text: str, at: int, problem: str) -> None:
    with pytest.raises(ClientError, match=rf"^filter, character {at}: .*{problem}") as refused:
        parse_filter(text)

    assert refused.value.status is CallStatus.INVALID_ARGUMENT
    _, line, pointer = str(refused.value).split("\n")
    assert pointer.index("^") - 2 == at - 1 - (text.rfind("\n", 0, at - 1) + 1)
    assert line[2:] in text


@given(st.text(alphabet="ab1\"'()=<>!~*, \n.-é\\andortifs", max_size=40))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        wanted = parse_filter(text)
    except ClientError as error:
        assert error.status is CallStatus.INVALID_ARGUMENT
    else:
        assert isinstance(wanted, AllOf | AnyOf | Negated | Comparison | OneOf | Prefix | Present)


def test_no_depth_of_a_text_breaks_the_client() -> None:
    assert parse_filter("(" * 30_000 + "a = 1" + ")" * 30_000) == Comparison(MetadataField("a"), Comparator.EQUAL, 1.0)
    with pytest.raises(InvalidRequest, match="deeper than 16"):
        filter_to_message(parse_filter("not " * 10_000 + "a = 1"))
    with pytest.raises(ClientError, match="70,005 characters"):
        parse_filter("a = 1" + " " * 70_000)


def test_the_server_parses_the_filter_that_the_client_sends() -> None:
    wanted = parse_filter(
        'not (year >= 2020 or tag in ("a", 1, true, 2020-05-01)) and name ~ "p*" and has page and draft != true and '
        "ingested_at < 2020-05-01T10:00:00.123456Z"
    )

    message = filter_to_message(wanted)
    assert message is not None
    assert parse_filter_message(message) == wanted
