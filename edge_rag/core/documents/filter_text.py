"""Filters as text: ``year >= 2020 and tag in ("a", "b") and name ~ "pump*"``."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from edge_rag.core.documents.filters import (
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    FilterField,
    FilterValue,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)
from edge_rag.core.documents.metadata import validate_key, validate_moment
from edge_rag.errors import InvalidRequest

MAX_FILTER_CHARACTERS: Final = 65_536
"""Most characters of a filter's text."""

_METADATA: Final = "meta."
_BUILTIN: Final = {field.value: field for field in BuiltinField}
_GRAMMAR: Final = r"""
    ?start: any
    any: all ("or"i all)*
    all: _part ("and"i _part)*
    _part: negated | _condition
    negated: "not"i _part
    _condition: "(" any ")" | compared | one_of | none_of | prefix | present
    compared: FIELD OPERATOR value
    one_of: FIELD "in"i "(" value ("," value)* ")"
    none_of: FIELD "not"i "in"i "(" value ("," value)* ")"
    prefix: FIELD "~" TEXT
    present: "has"i FIELD
    ?value: TEXT -> text
        | DATE -> date
        | NUMBER -> number
        | FLAG -> flag
    OPERATOR: "<=" | ">=" | "==" | "!=" | "=" | "<" | ">"
    TEXT: /"(?:[^"\\\n]|\\.)*"|'[^'\n]*'/
    DATE.3: /\d{4}-\d\d-\d\d(?:[Tt]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[-+]\d\d:\d\d)?)?/
    NUMBER.2: /[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/
    FLAG.2: /(?:true|false)\b/i
    FIELD: /[a-z0-9_.-]+/i
    %ignore /\s+/
"""
_EXPECTED: Final = {
    "FIELD": "a field such as year, meta.page or name",
    "TEXT": "a text in quotes",
    "DATE": "a date such as 2020-05-31",
    "NUMBER": "a number",
    "FLAG": "true or false",
    "OPERATOR": "one of = != < <= > >=",
    "TILDE": "~",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "$END": "the end",
}


def parse_filter(text: str) -> Filter:
    """Parses a filter.

    A condition is ``FIELD = VALUE`` (or ``!= < <= > >=``), ``FIELD in (VALUE, ...)``, ``FIELD not in (...)``,
    ``FIELD ~ "beginning*"`` or ``has FIELD``; ``and``, ``or``, ``not`` and parentheses combine them, ``not`` before
    ``and`` before ``or``. A field is ``name``, ``media_type``, ``page``, ``ingested_at`` or a key of the metadata;
    before a key there may be ``meta.``, and must where it is one of these names or words. A value is a text in quotes,
    a number, ``true``, ``false``, or a date as ISO 8601.
    """
    if len(text) > MAX_FILTER_CHARACTERS:
        raise _error(text[:60], 0, f"has {len(text):,} characters, at most {MAX_FILTER_CHARACTERS:,} are allowed")
    try:
        parsed = _parser().parse(text)
    except UnexpectedToken as error:
        found = "the filter ends here" if error.token.type == "$END" else f"{error.token.value!r} is not expected here"
        at = len(text.rstrip()) if error.token.type == "$END" else int(error.token.start_pos or 0)
        raise _error(text, at, f"{found}; expected {_names(error.accepts or error.expected)}") from error
    except UnexpectedCharacters as error:
        at = int(error.pos_in_stream or 0)
        problem = f"{text[at]!r} is not expected here; expected {_names(error.allowed or set())}"
        raise _error(text, at, problem) from error
    except _InvalidToken as error:
        raise _error(text, error.at, error.problem) from error
    assert isinstance(parsed, AllOf | AnyOf | Negated | Comparison | OneOf | Prefix | Present)
    return parsed


class _InvalidToken(Exception):
    """A token that the grammar accepts has an illegal value."""

    def __init__(self, token: Token, problem: str) -> None:
        super().__init__(problem)
        self.at = int(token.start_pos or 0)
        self.problem = problem


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds the filter during parsing, without a tree whose depth could exhaust the stack."""

    def any(self, *filters: Filter) -> Filter:
        return filters[0] if len(filters) == 1 else AnyOf(filters)

    def all(self, *filters: Filter) -> Filter:
        return filters[0] if len(filters) == 1 else AllOf(filters)

    def negated(self, negated: Filter) -> Filter:
        return Negated(negated)

    def compared(self, field: Token, operator: Token, value: FilterValue) -> Filter:
        if operator == "!=":
            return Negated(Comparison(_field(field), Comparator.EQUAL, value))
        return Comparison(_field(field), Comparator("=" if operator == "==" else str(operator)), value)

    def one_of(self, field: Token, *values: FilterValue) -> Filter:
        return OneOf(_field(field), values)

    def none_of(self, field: Token, *values: FilterValue) -> Filter:
        return Negated(OneOf(_field(field), values))

    def prefix(self, field: Token, pattern: Token) -> Filter:
        text = _text(pattern)
        if not text.endswith("*") or "*" in text[:-1]:
            raise _InvalidToken(pattern, 'a pattern is a beginning and one * at its end, such as "pump*"')
        if text == "*":
            return Present(_field(field))
        return Prefix(_field(field), text[:-1])

    def present(self, field: Token) -> Filter:
        return Present(_field(field))

    def text(self, token: Token) -> FilterValue:
        return _text(token)

    def number(self, token: Token) -> FilterValue:
        return float(token)

    def flag(self, token: Token) -> FilterValue:
        return token.lower() == "true"

    def date(self, token: Token) -> FilterValue:
        try:
            day = len(token) == 10
            moment = datetime.combine(date.fromisoformat(token), time()) if day else datetime.fromisoformat(token)
            return validate_moment("date", moment)
        except (ValueError, InvalidRequest):
            raise _InvalidToken(token, f"{str(token)!r} is not a date") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", transformer=_Builder())


def _field(token: Token) -> FilterField:
    if token in _BUILTIN:
        return _BUILTIN[str(token)]
    try:
        return MetadataField(validate_key(token.removeprefix(_METADATA)))
    except InvalidRequest as error:
        raise _InvalidToken(token, error.problem) from None


def _text(token: Token) -> str:
    if token[0] == "'":
        return str(token[1:-1])
    try:
        return str(json.loads(token))
    except ValueError:
        raise _InvalidToken(token, r"in a text in double quotes, write \\ for \ and \" for a quote") from None


def _names(terminals: Any) -> str:
    names = sorted({_EXPECTED.get(terminal, terminal.lower()) for terminal in terminals})
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _error(text: str, at: int, problem: str) -> InvalidRequest:
    line_start = text.rfind("\n", 0, at) + 1
    line = text[line_start:].partition("\n")[0]
    first = max(0, at - line_start - 60)
    pointer = " " * (at - line_start - first) + "^"
    return InvalidRequest("filter", f"character {at + 1}: {problem}\n  {line[first : first + 100]}\n  {pointer}")
