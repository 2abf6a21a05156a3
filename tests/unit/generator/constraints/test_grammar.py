import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.answer import FinishReason
from edge_rag.core.query import AnswerFormat, JsonSchema, Regex
from edge_rag.engine.constraint import AnyToken, Ended, Forced, Masked, NextTokens, OneOf
from edge_rag.errors import InvalidRequest, Overloaded
from edge_rag.generator.constraints.grammar import Grammar, GrammarBudget, GrammarCompiler, GrammarMatcher
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.support.examples import examples
from tests.unit.generator.constraints.json_schemas import random_schema

ROOT = Path(__file__).parents[4]
END = 2
SPECIAL = {0, 1, END}
TOKENIZER = ChatTokenizer.open(ROOT / "tests" / "fixtures" / "quoter")
SIZE = TOKENIZER.vocabulary_size
WIDER = SIZE + 100
GRAMMARS = GrammarCompiler(TOKENIZER.definition, TOKENIZER.encode, WIDER, frozenset({END}))


def allowed(move: NextTokens) -> list[int]:
    match move:
        case OneOf():
            return [int(token) for token in move.allowed]
        case Masked():
            return [int(token) for token in np.flatnonzero(move.allowed)]
        case Forced():
            return [move.tokens[0]]
        case Ended():
            return []
        case AnyToken():
            raise AssertionError("a grammar never allows everything")


def write(state: Grammar, pick: Callable[[list[int]], int], most: int = 400) -> tuple[list[int], Grammar]:
    """Chooses tokens until the end, or up to ``most``."""
    tokens_so_far: list[int] = []
    while not isinstance(move := state.next(), Ended) and len(tokens_so_far) < most:
        tokens = move.tokens if isinstance(move, Forced) else (pick(allowed(move)),)
        tokens_so_far += tokens
        state = state.after(tokens)
    return tokens_so_far, state


def text_of(tokens: list[int]) -> str:
    return TOKENIZER.detokenizer().feed(tokens)


def schema(value: object) -> JsonSchema:
    return JsonSchema(json.dumps(value))


def test_a_unique_continuation_is_forced_in_the_models_tokens() -> None:
    move = GRAMMARS.compile(Regex("the bearings of the pump are (greased|oiled)")).next()
    assert isinstance(move, Forced)
    assert "the bearings of the pump are ".startswith(text_of(list(move.tokens)))
    assert list(move.tokens) == TOKENIZER.encode("the bearings of the pump are greased")[: len(move.tokens)]
    assert len(move.tokens) >= 5


def test_json_is_generated_on_one_line_in_the_schemas_order() -> None:
    form = schema(
        {"type": "object", "properties": {"b": {"const": [1, 2]}, "a": {"const": None}}, "required": ["b", "a"]}
    )
    tokens_so_far, state = write(GRAMMARS.compile(form), max)
    assert text_of(tokens_so_far) == '{"b": [1, 2], "a": null}'
    assert state.next() == Ended(FinishReason.STOP)


def test_a_schema_cannot_loosen_its_own_enforcement() -> None:
    form = schema(
        {"const": [1, 2], "x-guidance": {"whitespace_flexible": True, "lenient": True, "item_separator": ";"}}
    )
    assert text_of(write(GRAMMARS.compile(form), max)[0]) == "[1, 2]"
    with pytest.raises(InvalidRequest, match="uniqueItems"):
        GRAMMARS.compile(schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}))


def test_the_model_decides_whether_a_text_ends() -> None:
    state = GRAMMARS.compile(Regex("a+")).after((TOKENIZER.encode("a")[0],))
    assert END in allowed(state.next())
    assert len(allowed(state.next())) > 1
    assert state.after((END,)).next() == Ended(FinishReason.STOP)


def test_a_text_that_is_complete_ends_without_an_end_token() -> None:
    state = GRAMMARS.compile(Regex("yes|no"))
    assert state.after(tuple(TOKENIZER.encode("yes"))).next() == Ended(FinishReason.STOP)


def test_a_grammar_of_the_empty_text_ends_at_once() -> None:
    assert GRAMMARS.compile(Regex("")).next() == Ended(FinishReason.STOP)


@given(st.integers(0, 300), st.integers(0, 10_000))
@settings(max_examples=examples(60), deadline=None)
def test_special_tokens_and_invalid_ids_are_never_allowed(seed: int, luck: int) -> None:
    rng = np.random.default_rng(luck)
    for form in (schema(random_schema(seed)), Regex("(?s:.){0,12}|<\\|im_end\\|>x")):
        tokens_so_far, _ = write(GRAMMARS.compile(form), lambda tokens: int(rng.choice(tokens)), most=200)
        if tokens_so_far and tokens_so_far[-1] == END:
            tokens_so_far.pop()
        assert SPECIAL.isdisjoint(tokens_so_far)
        assert all(token < SIZE for token in tokens_so_far)


@given(st.integers(0, 60), st.integers(0, 10_000))
@settings(max_examples=examples(40), deadline=None)
def test_a_state_is_unchanged_when_another_branch_is_followed(seed: int, luck: int) -> None:
    rng = np.random.default_rng(luck)

    def pick(tokens: list[int]) -> int:
        return int(rng.choice(tokens))

    start = GRAMMARS.compile(schema(random_schema(seed)))
    states, state = [start], start
    tokens_so_far: list[tuple[int, ...]] = [()]
    while not isinstance(move := state.next(), Ended) and len(states) < 60:
        tokens = move.tokens if isinstance(move, Forced) else (pick(allowed(move)),)
        state = state.after(tokens)
        states.append(state)
        tokens_so_far.append(tokens)
    for index in rng.permutation(len(states) - 1)[:5]:
        other, _ = write(states[index], pick)
        expected_tokens = [token for tokens in tokens_so_far[: index + 1] for token in tokens] + other
        json.loads(text_of(expected_tokens))
        again = states[index]
        for tokens, expected in zip(tokens_so_far[index + 1 :], states[index + 1 :], strict=True):
            again = again.after(tokens)
            assert allowed(again.next()) == allowed(expected.next())


def test_no_tokens_change_nothing() -> None:
    state = GRAMMARS.compile(Regex("ab|cd"))
    assert state.after(()) is state


def test_a_token_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="regex"):
        GRAMMARS.compile(Regex("[ab]{2}")).after(tuple(TOKENIZER.encode("x")))


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (JsonSchema(""), "is not JSON"),
        (JsonSchema('{"type": "object"'), "is not JSON: .*line 1"),
        (JsonSchema('{}}, {"lark_grammar": "start: /x/"'), "is not JSON"),
        (JsonSchema('{"minimum": NaN}'), "NaN"),
        (JsonSchema("[" * 60_000), "nested too deeply|recursion"),
        (JsonSchema('{"items": ' * 500 + "{}" + "}" * 500), "recursion|deep"),
        (JsonSchema("[]"), "must be an object"),
        (JsonSchema("false"), "must be an object"),
        (JsonSchema('{"items": false, "minItems": 1, "type": "array"}'), "atisf"),
        (JsonSchema('{"type": "colour"}'), "colour"),
        (JsonSchema('{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (JsonSchema('{"not": {}}'), "not"),
        (JsonSchema('{"$ref": "http://example.com/s"}'), "example.com"),
        (JsonSchema('{"$ref": "#/$defs/none"}'), "none"),
        (JsonSchema('{"$ref": "#"}'), "no text can satisfy it"),
        (JsonSchema('{"type": "integer", "minimum": 5, "maximum": 3}'), "minimum"),
        (JsonSchema('{"type": "string", "pattern": "(a"}'), "unclosed group"),
        (JsonSchema('{"type": "string", "format": "colour"}'), "colour"),
        (JsonSchema(json.dumps({"properties": {f"p{n}": {} for n in range(3000)}})), "too big|Too many|items"),
        (Regex("(a"), "unclosed group"),
        (Regex("[z-a]"), "range"),
        (Regex("a{5,2}"), "repetition"),
        (Regex("(?=a)b"), "look-around"),
        (Regex(r"(a)\1"), "backreferences"),
        (Regex("[a&&b]"), "no text can satisfy it"),
        (Regex("a\nb"), "one line"),
        (Regex("a\\"), "escape"),
        (Regex("(" * 5000 + "a" + ")" * 5000), "nest"),
    ],
)
def test_a_format_that_cannot_be_enforced_is_refused_with_the_reason(form: AnswerFormat, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        GRAMMARS.compile(form)
    assert refused.value.field == ("json_schema" if isinstance(form, JsonSchema) else "regex")
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@given(st.text(st.sampled_from("ab(){}[]|*+?.^$\\/\"',0129-dws<>&~é"), max_size=24))
@settings(max_examples=examples(300), deadline=None)
def test_any_expression_compiles_or_is_refused(pattern: str) -> None:
    try:
        write(GRAMMARS.compile(Regex(pattern)), min, most=20)
    except InvalidRequest as refused:
        assert refused.field == "regex"


KEYWORDS = ("type", "items", "properties", "enum", "anyOf", "$ref", "required", "minimum", "pattern", "$defs", "allOf")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.just("string"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
@settings(max_examples=examples(300), deadline=None)
def test_any_json_compiles_as_a_schema_or_is_refused(value: object) -> None:
    try:
        write(GRAMMARS.compile(schema(value)), min, most=20)
    except InvalidRequest as refused:
        assert refused.field == "json_schema"


@pytest.mark.parametrize("form", [Regex("((a{1,500}){1,500}){1,500}"), Regex("(.*a.{30}|.*b.{40}|.*c.{50})+")])
def test_a_grammar_that_exceeds_its_limits_is_refused(form: Regex) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidRequest, match="regex: lexer error: too many"):
        write(GRAMMARS.compile(form), lambda tokens: int(rng.choice([t for t in tokens if t != END])), most=5000)


def test_memory_of_formats_is_shared_by_callers_and_given_back() -> None:
    budget = GrammarBudget(8 << 20)
    compiler = GrammarCompiler(TOKENIZER.definition, TOKENIZER.encode, WIDER, frozenset({END}), budget)
    large = [Regex("a{8000}"), Regex("a{8001}")]
    kept = [compiler.compile(form, "greedy") for form in large[:1]]
    with pytest.raises(Overloaded, match="answer format"):
        compiler.compile(large[1], "greedy")
    held = budget.used_bytes
    kept.append(compiler.compile(Regex("yes|no"), "modest"))
    state = kept[-1].after(tuple(TOKENIZER.encode("y")))
    del kept[-1]
    assert budget.used_bytes > held, "a later state has the memory of the first"
    del state
    assert budget.used_bytes == held
    kept.clear()
    assert budget.used_bytes == 0


def test_a_format_that_cannot_be_compiled_takes_no_memory() -> None:
    budget = GrammarBudget()
    compiler = GrammarCompiler(TOKENIZER.definition, TOKENIZER.encode, WIDER, frozenset({END}), budget)
    with pytest.raises(InvalidRequest):
        compiler.compile(Regex("(a"))
    gc.collect()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("form", [Regex("a{16000}"), JsonSchema(json.dumps({"const": "x" * 16_000}))])
def test_the_estimate_of_memory_is_not_below_what_is_taken(form: AnswerFormat) -> None:
    budget = GrammarBudget()
    compiler = GrammarCompiler(TOKENIZER.definition, TOKENIZER.encode, WIDER, frozenset({END}), budget)
    kept = [compiler.compile(Regex("abc"))]
    before, held = psutil.Process().memory_info().rss, budget.used_bytes
    kept += [compiler.compile(form, f"caller {number}") for number in range(4)]
    assert psutil.Process().memory_info().rss - before <= 1.2 * (budget.used_bytes - held)


def test_a_format_whose_steps_take_too_long_together_ends_its_request() -> None:
    seconds = iter(range(1000))
    state = GRAMMARS.compile(Regex("[ab]{100}")).matcher
    slow = GrammarMatcher(state._matcher, state._rules, clock=lambda: float(next(seconds)))
    slow.move()
    with pytest.raises(InvalidRequest, match="regex: takes too much time"):
        slow.move()
