"""Bounds of the size of answer formats, held against what llguidance does with them."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from edge_rag.core.query import AnswerFormat, JsonSchema, Regex
from edge_rag.errors import InvalidRequest
from edge_rag.generator.constraints.grammar import (
    COMPILER_LIMITS,
    LARGEST_MULTIPLE,
    LONGEST_FORCED,
    grammar_text,
)
from edge_rag.generator.constraints.regex_size import DEEPEST_GROUPS, MOST, regex_size
from edge_rag.generator.constraints.schema_size import DEEPEST_SCHEMA, schema_size
from tests.support.examples import examples
from tests.unit.generator.constraints.json_schemas import random_schema

END = 256


class Bytes:
    def __init__(self) -> None:
        self.tokens = [bytes((byte,)) for byte in range(END)] + [b"<end>"]
        self.special_token_ids = [END]
        self.eos_token_id = END
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


TOKENIZER = LLTokenizer(TokenizerWrapper(Bytes()), n_vocab=END + 1)


def longest_forced(form: AnswerFormat, seed: int, steps: int = 60) -> int:
    """Follows random text and returns the most bytes that could only be continued in one way."""
    matcher = LLMatcher(TOKENIZER, grammar_text(form), log_level=0, limits=COMPILER_LIMITS)
    choice = random.Random(seed)
    longest = 0
    for _ in range(steps):
        forced = matcher.compute_ff_tokens()
        longest = max(longest, len(forced))
        matcher.consume_tokens(forced)
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [byte for byte in range(END) if mask >> byte & 1]
        if not allowed or matcher.is_error() or matcher.is_stopped():
            break
        matcher.consume_token(choice.choice(allowed))
    return longest


counts = st.integers(0, 40)
suffixes = (
    st.sampled_from(["", "*", "+", "?", "*?", "+?", "??"])
    | counts.map("{{{}}}".format)
    | counts.map("{{{},}}".format)
    | st.tuples(counts, counts).map(lambda pair: f"{{{min(pair)},{max(pair)}}}")
)
atoms = st.sampled_from(
    [*"abé日𝄞", "[ab]", "[^a]", "[]a]", "[a-c[xy]]", "[-a]", r"[\]a]", r"\d", r"\.", r"\x41", r"\u{e9}", r"\p{Lu}", "."]
)
patterns = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, suffixes).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
        | st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
        | inner.map("(?i:{})".format)
        | inner.map("(?P<n>{})".format)
    ),
    max_leaves=6,
)


@given(patterns, st.integers(0, 1000))
@settings(max_examples=examples(400), deadline=None)
def test_no_text_that_can_only_go_on_in_one_way_is_longer_than_its_bound(pattern: str, seed: int) -> None:
    bound = regex_size(pattern)
    try:
        forced = longest_forced(Regex(pattern), seed)
    except InvalidRequest:
        assert bound.shortest > LONGEST_FORCED
        return
    assert forced <= bound.shortest


@given(st.text(st.sampled_from("ab(){}[]|*+?.^$\\,0129-px<>&~é:"), max_size=30))
@settings(max_examples=examples(400), deadline=None)
def test_the_bound_holds_for_text_that_hardly_is_an_expression(pattern: str) -> None:
    bound = regex_size(pattern)
    if bound.shortest <= LONGEST_FORCED:
        try:
            assert longest_forced(Regex(pattern), 0, steps=10) <= bound.shortest
        except InvalidRequest as refused:
            assert refused.field == "regex"


@pytest.mark.parametrize(
    ("pattern", "shortest"),
    [
        ("", 0),
        ("abc", 3),
        ("é日𝄞", 9),
        ("(a{1000}){1000}", 1_000_000),
        ("((a{1000}){1000})?", 1_000_000),
        ("(a{1,500}){1,500}", 1),
        ("(ab|c){3,}x*", 7),
        ("a{10}{10}", 100),
        ("a{4}+b{3}*", 7),
        ("[(a{9}){9}]", 4),
        (r"\(a\{9}", 11),
        ("(?x: a {9} {9} )", 4 * 16 * 81),
        ("a{99999999999999999999}", MOST),
    ],
)
def test_counts_of_nested_repetitions_multiply(pattern: str, shortest: int) -> None:
    assert regex_size(pattern).shortest == shortest


def test_groups_nested_too_deeply_are_refused() -> None:
    regex_size("(" * DEEPEST_GROUPS + "a")
    with pytest.raises(ValueError, match="nested"):
        regex_size("(" * (DEEPEST_GROUPS + 1))


@given(st.integers(0, 100_000), st.integers(0, 1000))
@settings(max_examples=examples(100), deadline=None)
def test_sound_schemas_are_within_their_bounds(seed: int, luck: int) -> None:
    schema = random_schema(seed)
    assert schema_size(schema).shortest <= LONGEST_FORCED
    longest_forced(JsonSchema(json.dumps(schema)), luck, steps=40)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string", "minLength": 1_000_000}, "lower minLength"),
        ({"type": "string", "minLength": 1e300}, "lower minLength"),
        ({"type": "string", "pattern": "^(a{1000}){1000}$"}, "counts in patterns"),
        ({"properties": {"a": {"items": {"pattern": "(a{1000}){1000}"}}}}, "counts in patterns"),
        ({"patternProperties": {"(a{1000}){1000}": {}}}, "counts in patterns"),
        ({"allOf": [{"pattern": "(a{200})+"}, {"pattern": "(a{201})+"}]}, "several patterns"),
        (
            {
                "$defs": {"x": {"properties": {"k": {"pattern": "(a{200})+"}}}},
                "$ref": "#/$defs/x",
                "properties": {"k": {"pattern": "(a{201})+"}},
            },
            "several patterns",
        ),
        ({"const": "x" * (LONGEST_FORCED + 1)}, "shorten const"),
        ({"enum": [{"k": ["x" * (LONGEST_FORCED + 1)]}]}, "shorten const"),
        ({"multipleOf": LARGEST_MULTIPLE + 1}, "multipleOf"),
        ({"multipleOf": 1e300}, "multipleOf"),
        ({"allOf": [{"multipleOf": 101}, {"multipleOf": 103}]}, "multipleOf"),
        ({"multipleOf": 101, "anyOf": [{"multipleOf": 103}, {}]}, "multipleOf"),
        ({"$ref": "http://example.com/a"}, "inside the schema"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        (
            {
                "$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(300)} | {"a300": {}},
                "$ref": "#/$defs/a0",
            },
            "inside",
        ),
    ],
)
def test_a_schema_too_large_is_refused_with_what_to_reduce(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        grammar_text(JsonSchema(json.dumps(schema)))
    assert refused.value.field == "json_schema"
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "schema",
    [
        {"multipleOf": 0.01, "minimum": 0},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"pattern": "^[A-Z]{2}[0-9]{1,10}$"}}},
        {"properties": {f"p{n}": {"pattern": "^.{1,200}$", "maxLength": 100} for n in range(50)}},
        {"type": "string", "format": "uri", "pattern": "^https://.{1,100}"},
        {
            "$defs": {"n": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}}},
            "$ref": "#/$defs/n",
        },
        {"anyOf": [{"pattern": "(a{200})+"}, {"pattern": "(a{201})+"}]},
    ],
)
def test_ordinary_schemas_are_not_too_large(schema: dict[str, Any]) -> None:
    assert grammar_text(JsonSchema(json.dumps(schema)))


def test_depth_counts_objects_and_lists() -> None:
    nested: dict[str, Any] = {}
    for _ in range(DEEPEST_SCHEMA):
        nested = {"items": nested}
    schema_size(nested)
    with pytest.raises(ValueError, match="nested too deeply"):
        schema_size({"items": nested})
