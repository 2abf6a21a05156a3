import pytest
from google.protobuf import text_format

from edge_rag.api.v1 import metadata_pb2
from edge_rag.errors import InvalidRequest
from edge_rag.wire.metadata import parse_filter_message

_YEAR = 'field { metadata: "year" }'
_ONE = "values { number: 1 } "
_COMPARISON = "comparison { %s comparator: %s value { %s } }"


def filter_of(text: str) -> metadata_pb2.Filter:
    return text_format.Parse(text, metadata_pb2.Filter())


def negated(depth: int) -> str:
    return "negated { " * (depth - 1) + 'present { metadata: "a" }' + " }" * (depth - 1)


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("", "filter", "no condition"),
        ("all_of {}", "filter.all_of", "at least one"),
        (
            "any_of { filters { present { builtin: BUILTIN_FIELD_PAGE } } filters {} }",
            "filter.any_of[1]",
            "no condition",
        ),
        ("negated {}", "filter.negated", "no condition"),
        ("present {}", "filter.present", "names no field"),
        ("present { builtin: BUILTIN_FIELD_UNSPECIFIED }", "filter.present", "0 is not a field"),
        ('present { metadata: "Bad Key" }', "metadata['Bad Key']", "a key is"),
        (_COMPARISON % (_YEAR, "COMPARATOR_UNSPECIFIED", "number: 1"), "filter.comparison.comparator", "0 is not"),
        (_COMPARISON % (_YEAR, "COMPARATOR_LESS", "flag: true"), "filter.comparison.comparator", "have no order"),
        (_COMPARISON % (_YEAR, "COMPARATOR_LESS", ""), "filter.comparison.value", "no value"),
        (_COMPARISON % (_YEAR, "COMPARATOR_LESS", "number: nan"), "filter.comparison.value", "finite"),
        (_COMPARISON % (_YEAR, "COMPARATOR_LESS", 'text: " "'), "filter.comparison.value", "empty"),
        (_COMPARISON % (_YEAR, "COMPARATOR_LESS", 'tags { texts: "a" }'), "filter.comparison.value", "single value"),
        (
            _COMPARISON % (_YEAR, "COMPARATOR_LESS", "date { seconds: -99999999999 }"),
            "filter.comparison.value",
            "1 to 9999",
        ),
        (
            _COMPARISON % ("field { builtin: BUILTIN_FIELD_PAGE }", "COMPARATOR_LESS", 'text: "a"'),
            "filter.comparison.value",
            "a number, as page is",
        ),
        (
            _COMPARISON % ("field { builtin: BUILTIN_FIELD_INGESTED_AT }", "COMPARATOR_LESS", "number: 2020"),
            "filter.comparison.value",
            "a date, as ingested_at is",
        ),
        (
            _COMPARISON % ("field { builtin: BUILTIN_FIELD_NAME }", "COMPARATOR_LESS", "flag: true"),
            "filter.comparison.value",
            "a text, as name is",
        ),
        (f"one_of {{ {_YEAR} }}", "filter.one_of.values", "at least one"),
        (f"one_of {{ {_YEAR} values {{ number: 1 }} values {{}} }}", "filter.one_of.values[1]", "no value"),
        (
            f"one_of {{ {_YEAR} {1025 * _ONE} }}",
            "filter.one_of.values[1024]",
            "one value too many",
        ),
        (f"prefix {{ {_YEAR} }}", "filter.prefix.prefix", "1 to 4,096"),
        ('prefix { field { builtin: BUILTIN_FIELD_PAGE } prefix: "1" }', "filter.prefix.field", "is not a text"),
        (f'prefix {{ {_YEAR} prefix: "a\\0" }}', "filter.prefix.prefix", "control"),
        (negated(17), "filter" + ".negated" * 16, "deeper than 16"),
        (
            "all_of { %s }" % ('filters { present { metadata: "a" } } ' * 256),
            "filter.all_of[255]",
            "one filter too many",
        ),
    ],
)
def test_an_unusable_part_is_refused_by_its_path(text: str, field: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        parse_filter_message(filter_of(text))

    assert refused.value.field == field


def test_the_largest_filters_are_taken() -> None:
    parse_filter_message(filter_of(negated(16)))
    parse_filter_message(filter_of("all_of { %s }" % ('filters { present { metadata: "a" } } ' * 255)))
    parse_filter_message(filter_of(f"one_of {{ {_YEAR} {1024 * _ONE} }}"))
