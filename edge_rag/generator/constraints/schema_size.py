"""Bounds the size of a JSON schema before anything compiles it; see ``regex_size`` for why.

llguidance bounds the structure of a schema by itself (its grammar's symbols, the items of a step). Not bounded are the
automata of single strings and numbers, so those are bounded here. Where several patterns apply to one string, an
automaton is in a state of each of them, so their sizes multiply; several ``multipleOf`` make the least common multiple.
What applies to one value is over-estimated: everything below a part of an ``allOf``, or below the target of a
``$ref`` and the keywords beside it, may meet anything below another part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Final

from edge_rag.generator.constraints.regex_size import MOST, NOTHING, RegexSize, regex_size

DEEPEST_SCHEMA: Final = 128
"""Most objects and arrays of a schema inside one another; as in llguidance's own parser."""

DEEPEST_REFERENCES: Final = 200
"""Most schemas applied inside one another, references followed."""

_FORMAT: Final = RegexSize(shortest=256, positions=32)
"""Bounds of the patterns that formats of strings stand for. The host name's has more positions, all alike."""

_SCHEMAS: Final = frozenset(
    ("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
     "propertyNames", "contentSchema", "not", "if", "then", "else")
)  # fmt: skip
_LISTS: Final = frozenset(("prefixItems", "items"))
_MAPS: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_EITHER: Final = ("anyOf", "oneOf")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """Upper bounds of what a schema makes of one string or number.

    Attributes:
        text: Bounds of the patterns of a string; None without patterns.
        multiple: Largest least common multiple of ``multipleOf``, in units of its last decimal place.
    """

    text: RegexSize | None = None
    least_length: int = 0
    multiple: int = 1
    literal: int = 0

    @property
    def shortest(self) -> int:
        return max((self.text or NOTHING).shortest + self.least_length, self.literal)

    def beside(self, other: SchemaSize) -> SchemaSize:
        """Returns the bounds of alternative schemas, or of schemas for different values."""
        if self.text is None or other.text is None:
            text = self.text or other.text
        else:
            text = RegexSize(
                max(self.text.shortest, other.text.shortest), max(self.text.positions, other.text.positions)
            )
        return SchemaSize(
            text,
            max(self.least_length, other.least_length),
            max(self.multiple, other.multiple),
            max(self.literal, other.literal),
        )

    def together_with(self, other: SchemaSize) -> SchemaSize:
        """Returns the bounds of schemas that may apply to the same value."""
        text = self.text or other.text
        if self.text is not None and other.text is not None:
            text = self.text.together_with(other.text)
        return SchemaSize(
            text,
            max(self.least_length, other.least_length),
            min(self.multiple * other.multiple, MOST),
            max(self.literal, other.literal),
        )


def schema_size(schema: Mapping[str, object]) -> SchemaSize:
    """Returns upper bounds of a schema, which need not be valid."""
    _check_depth(schema)
    return _Walk(schema).size(schema, 0)


class _Walk:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._targets: dict[str, SchemaSize] = {}

    def size(self, schema: object, depth: int) -> SchemaSize:
        if not isinstance(schema, Mapping):
            return SchemaSize()
        if depth > DEEPEST_REFERENCES:
            raise ValueError(f"applies more than {DEEPEST_REFERENCES} schemas inside one another")
        parts = [self._nested(schema, depth).together_with(_own(schema))]
        parts += [self.size(part, depth + 1) for part in _list(schema.get("allOf"))]
        parts += [self._target(schema[key], depth) for key in _REFERENCES if key in schema]
        for key in _EITHER:
            parts.append(_beside([self.size(part, depth + 1) for part in _list(schema.get(key))]))
        return reduce(SchemaSize.together_with, parts)

    def _nested(self, schema: Mapping[str, object], depth: int) -> SchemaSize:
        """Returns the bounds of what applies to the values inside a value, and to their names."""
        inner: list[object] = []
        keys = SchemaSize()
        for name, value in schema.items():
            if name in _MAPS and isinstance(value, Mapping):
                inner += value.values()
                keys = keys.beside(_literals(list(value)))
                if name == "patternProperties":
                    keys = reduce(SchemaSize.beside, map(_pattern, value), keys)
            elif name in _LISTS and isinstance(value, list):
                inner += value
            elif name in _SCHEMAS:
                inner.append(value)
        return _beside([keys, *(self.size(each, depth + 1) for each in inner)])

    def _target(self, reference: object, depth: int) -> SchemaSize:
        if not isinstance(reference, str):
            return SchemaSize()
        if reference not in self._targets:
            self._targets[reference] = SchemaSize()  # of a schema inside itself: it adds nothing new
            self._targets[reference] = self.size(self._find(reference), depth + 1)
        return self._targets[reference]

    def _find(self, reference: str) -> object:
        found: object = self._root
        if not reference.startswith("#"):
            raise ValueError(f"refers to {reference[:100]}; only references inside the schema, #/..., can be followed")
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise ValueError(f"refers to {reference[:100]}, which does not exist")
        return found


def _own(schema: Mapping[str, object]) -> SchemaSize:
    size = SchemaSize(_FORMAT) if "format" in schema else SchemaSize()
    if isinstance(pattern := schema.get("pattern"), str):
        size = size.together_with(_pattern(pattern))
    literals = _literals([schema.get("const"), *_list(schema.get("enum")), *_list(schema.get("required"))])
    length, multiple = schema.get("minLength"), schema.get("multipleOf")
    return size.together_with(
        SchemaSize(
            least_length=int(max(0, min(length, MOST))) if isinstance(length, int | float) else 0,
            multiple=_units(multiple) if isinstance(multiple, int | float) else 1,
            literal=literals.literal,
        )
    )


def _pattern(pattern: object) -> SchemaSize:
    return SchemaSize(regex_size(pattern)) if isinstance(pattern, str) else SchemaSize()


def _literals(values: list[object]) -> SchemaSize:
    """Returns the bounds of texts in values of any kind."""
    longest = 0
    while values:
        value = values.pop()
        if isinstance(value, str):
            longest = max(longest, len(value.encode("utf-8", "surrogatepass")))
        elif isinstance(value, Mapping):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value
    return SchemaSize(literal=longest)


def _units(multiple: float) -> int:
    return 1 if multiple <= 0 else min(Fraction(str(min(multiple, MOST))).numerator, MOST)


def _beside(sizes: list[SchemaSize]) -> SchemaSize:
    return reduce(SchemaSize.beside, sizes, SchemaSize())


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _check_depth(schema: object) -> None:
    level = [schema]
    for _ in range(DEEPEST_SCHEMA + 1):
        inner: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        level = [value for value in inner if isinstance(value, Mapping | list)]
        if not level:
            return
    raise ValueError(f"is nested too deeply: at most {DEEPEST_SCHEMA} objects and lists may be inside one another")
