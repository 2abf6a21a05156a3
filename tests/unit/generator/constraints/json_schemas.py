"""Random JSON schemas of which every instance is short, for checking that answers under them validate."""

import random
from typing import Any

Schema = dict[str, Any]

_NAMES = ("name", "reading", "unit", "größe", "is on", 'a "quoted" key', "<|im_end|>", "x/y", "n1", "notes", "[2]", "z")
_WORDS = ("grease", "oil", "3 bar", 'say "stop"', "日本", "[1]", "<|im_start|>", "", "back\\slash", "tab\there")
_PATTERNS = (
    "^[a-c]{2,5}$",
    r"^\d{4}-[01]\d$",
    "^(on|off|auto)$",
    "^[A-Z][a-z]{1,6}( [A-Z][a-z]{1,6})?$",
    r"^#[0-9a-f]{6}$",
    '^[^"\\\\]{1,6}$',
    "^a{2,4}b{0,3}$",
)
_FORMATS = ("ipv4", "ipv6", "uuid")


def random_schema(seed: int) -> Schema:
    """Returns the schema of a seed: nested, with required and optional parts, bounds, enumerations and alternatives."""
    chance = random.Random(seed)
    schema = _object(chance, 3) if chance.random() < 0.8 else _any(chance, 3)
    if chance.random() < 0.3:
        shared = _any(chance, 1)
        schema = {
            "$defs": {"shared": shared},
            "type": "object",
            "properties": {"first": schema, "second": {"$ref": "#/$defs/shared"}},
            "required": ["first", "second"],
            "additionalProperties": False,
        }
    return schema


def _any(chance: random.Random, depth: int) -> Schema:
    kinds = [_integer, _number, _string, _enumeration, _simple]
    if depth > 0:
        kinds += [_object, _array, _tuple, _alternatives]
    return chance.choice(kinds)(chance, depth)


def _object(chance: random.Random, depth: int) -> Schema:
    names = chance.sample(_NAMES, chance.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _any(chance, depth - 1) for name in names},
        "required": [name for name in names if chance.random() < 0.6],
        "additionalProperties": False,
    }


def _array(chance: random.Random, depth: int) -> Schema:
    least = chance.randint(0, 2)
    return {
        "type": "array",
        "items": _any(chance, depth - 2),
        "minItems": least,
        "maxItems": least + chance.randint(0, 2),
    }


def _tuple(chance: random.Random, depth: int) -> Schema:
    parts = [_any(chance, depth - 2) for _ in range(chance.randint(1, 2))]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "items": False}


def _alternatives(chance: random.Random, depth: int) -> Schema:
    if chance.random() < 0.5:
        return {"anyOf": [_any(chance, depth - 1) for _ in range(chance.randint(2, 3))]}
    return {"oneOf": [_object(chance, depth - 1), _string(chance, 0), _integer(chance, 0)]}


def _integer(chance: random.Random, depth: int) -> Schema:
    least = chance.randint(-1200, 1200)
    schema: Schema = {"type": "integer"}
    schema[chance.choice(("minimum", "exclusiveMinimum"))] = least
    schema[chance.choice(("maximum", "exclusiveMaximum"))] = least + chance.randint(2, 5000)
    if chance.random() < 0.2:
        return {"type": "integer", "minimum": 0, "maximum": 1000, "multipleOf": chance.choice((2, 5, 25))}
    return schema


def _number(chance: random.Random, depth: int) -> Schema:
    least = round(chance.uniform(-50, 50), 1)
    return {"type": "number", "minimum": least, "maximum": least + chance.randint(1, 90), "multipleOf": 0.5}


def _string(chance: random.Random, depth: int) -> Schema:
    kind = chance.randrange(3)
    if kind == 0:
        return {"type": "string", "pattern": chance.choice(_PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": chance.choice(_FORMATS)}
    least = chance.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + chance.randint(0, 9)}


def _enumeration(chance: random.Random, depth: int) -> Schema:
    values: list[Any] = [*chance.sample(_WORDS, 3), chance.randint(-9, 9), 2.5, None, True, [1, "x"], {"k": 0}]
    if chance.random() < 0.3:
        return {"const": chance.choice(values)}
    return {"enum": chance.sample(values, chance.randint(1, 4))}


def _simple(chance: random.Random, depth: int) -> Schema:
    return {"type": chance.choice(("boolean", "null", ["boolean", "null"]))}
