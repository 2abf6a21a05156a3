"""OpenAI's filters: any JSON is a filter or a named error, and a filter means what the same one means elsewhere."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.filter_text import parse_filter
from edge_rag.core.documents.filters import MAX_DEPTH, MAX_FILTERS, MAX_VALUES
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.openai.filters import parse_filters
from edge_rag.wire.metadata import filter_to_message, parse_filter_message
from tests.support.examples import examples

YEAR = {"type": "eq", "key": "year", "value": 2020}
KEYS = ("year", "kind", "checked", "tag", "absent")
SINGLE: tuple[str | float | bool, ...] = (
    2020,
    2020.0,
    2021,
    0,
    -1.5,
    True,
    False,
    "2020",
    "manual",
    "pump",
    "gas",
    "true",
    "2020-05-31",
    "2020-05-31T12:30:00Z",
    "2020-05-31 14:30+02:00",
    "2020-13-31",
    "0001-01-01T00:00:00+14:00",
)


def comparisons() -> st.SearchStrategy[dict[str, Any]]:
    keys, single = st.sampled_from(KEYS), st.sampled_from(SINGLE)
    ordered = st.sampled_from([one for one in SINGLE if not isinstance(one, bool)])
    several = st.lists(single, min_size=1, max_size=4)
    return st.one_of(
        st.fixed_dictionaries({"type": st.sampled_from(("eq", "ne")), "key": keys, "value": single}),
        st.fixed_dictionaries({"type": st.sampled_from(("gt", "gte", "lt", "lte")), "key": keys, "value": ordered}),
        st.fixed_dictionaries({"type": st.sampled_from(("in", "nin")), "key": keys, "value": several}),
    )


def compound(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(parts, min_size=1, max_size=3)
    return st.fixed_dictionaries({"type": st.sampled_from(("and", "or")), "filters": some})


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (YEAR, "year = 2020"),
        ({**YEAR, "type": "ne"}, "not year = 2020"),
        ({"type": "in", "key": "year", "value": [2020, "a"]}, 'year in (2020, "a")'),
        ({"type": "nin", "key": "year", "value": [2020]}, "not year in (2020)"),
        ({"type": "lte", "key": "year", "value": 2020}, "year <= 2020"),
        ({"type": "gt", "key": "year", "value": "a"}, 'year > "a"'),
        ({"type": "gte", "key": "day", "value": "2020-05-31"}, 'day >= "2020-05-31" or day >= 2020-05-31'),
        ({"type": "lt", "key": "day", "value": "2020-13-31"}, 'day < "2020-13-31"'),
        ({"type": "and", "filters": [YEAR, {**YEAR, "value": True}]}, "year = 2020 and year = true"),
        ({"type": "or", "filters": [YEAR, {**YEAR, "key": "a"}]}, "year = 2020 or a = 2020"),
    ],
)
def test_a_filter_means_what_the_command_line_says_so(wanted: dict[str, Any], meant: str) -> None:
    assert parse_filters(wanted) == parse_filter(meant)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(("eq", "in", "and", "or", "type", "key", "value", "filters", "2020-05-31", "10000-01-01")),
    ),
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.dictionaries(st.sampled_from(("type", "key", "value", "filters", "x")), parts, max_size=4),
        st.fixed_dictionaries({"type": st.sampled_from(("eq", "lt", "in", "nin")), "key": parts, "value": parts}),
        st.fixed_dictionaries({"type": st.sampled_from(("and", "or")), "filters": st.lists(parts, max_size=3)}),
    ),
    max_leaves=20,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(JSON, st.recursive(comparisons(), compound, max_leaves=30)))
def test_any_json_is_a_legal_filter_or_a_named_error(value: Any) -> None:
    try:
        translated = parse_filters(value)
    except InvalidRequest as error:
        assert error.field.startswith("filters")
        return
    if value is None:
        assert translated is None
        return
    message = filter_to_message(translated)
    assert message is not None
    assert parse_filter_message(message) == translated, "gRPC takes it, too"


def deep(depth: int) -> dict[str, Any]:
    wanted: dict[str, Any] = YEAR
    for _ in range(depth - 1):
        wanted = {"type": "and", "filters": [wanted]}
    return wanted


@pytest.mark.parametrize(
    ("value", "field", "problem"),
    [
        ([], "filters", "must be an object"),
        ({}, "filters.type", "must be one of eq"),
        ({"type": "like"}, "filters.type", "must be one of"),
        ({"type": "eq", "key": "a", "value": 1, "boost": 2}, "filters.boost", "is not supported"),
        ({"type": "eq", "value": 1}, "filters.key", "is missing"),
        ({"type": "eq", "key": "A key", "value": 1}, "filters.key", "a key is"),
        ({"type": "eq", "key": "a"}, "filters.value", "must be a string"),
        ({"type": "eq", "key": "a", "value": [1]}, "filters.value", "must be a string"),
        ({"type": "eq", "key": "a", "value": " "}, "filters.value", "must not be empty"),
        ({"type": "gt", "key": "a", "value": True}, "filters.type", "have no order"),
        ({"type": "in", "key": "a", "value": "a"}, "filters.value", "must be an array"),
        ({"type": "nin", "key": "a", "value": []}, "filters.value", "must be an array"),
        ({"type": "in", "key": "a", "value": ["a", None]}, "filters.value[1]", "must be a string"),
        ({"type": "and", "filters": []}, "filters.filters", "at least one"),
        ({"type": "or", "filters": [YEAR, {"type": "and"}]}, "filters.filters[1].filters", "at least one"),
        ({"type": "or", "filters": [{**YEAR, "value": {}}]}, "filters.filters[0].value", "must be a string"),
        (deep(MAX_DEPTH + 1), "filters" + ".filters[0]" * MAX_DEPTH, "lies deeper"),
        (deep(5_000), "filters" + ".filters[0]" * MAX_DEPTH, "lies deeper"),
        ({"type": "or", "filters": [YEAR] * MAX_FILTERS}, f"filters.filters[{MAX_FILTERS - 1}]", "one filter too many"),
        (
            {"type": "in", "key": "a", "value": [1] * (MAX_VALUES + 1)},
            f"filters.value[{MAX_VALUES}]",
            "one value too many",
        ),
    ],
)
def test_errors_name_the_path_of_the_unusable_part(value: Any, field: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_filters(value)
    assert error.value.field == field
    assert problem in error.value.problem


def test_the_largest_filters_are_taken() -> None:
    assert parse_filters(deep(MAX_DEPTH)) is not None
    assert parse_filters({"type": "or", "filters": [YEAR] * (MAX_FILTERS - 1)}) is not None
    assert parse_filters({"type": "in", "key": "a", "value": [1] * MAX_VALUES}) is not None


def test_the_field_is_named_as_the_caller_knows_it() -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_filters({"type": "x"}, "tools[0].filters")
    assert error.value.field == "tools[0].filters.type"
