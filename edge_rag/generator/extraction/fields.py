"""The fields of a JSON schema that values of the documents can fill; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edge_rag.errors import InvalidRequest
from edge_rag.generator.extraction.choose import ValueType

MAX_FIELDS: Final = 64
"""Most fields of a schema, those of nested objects included."""

MAX_DEPTH: Final = 8
"""Most objects inside each other, and references that follow each other."""

MAX_CHOICES: Final = 256
"""Most values of an ``enum``."""

_WORD_PARTS: Final = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=[a-z])(?=[A-Z])|[_\-./]+")


@dataclass(frozen=True, slots=True)
class Field:
    """A value that a schema asks for.

    Attributes:
        pointer: JSON pointer to it (RFC 6901); empty for the whole answer.
        choices: The texts that it may be; empty for any.
    """

    pointer: str
    words: str
    type: ValueType
    schema: Mapping[str, Any]
    choices: tuple[str, ...]
    many: bool
    items: Mapping[str, Any]
    has_pattern: bool
    nullable: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A property of an object.

    Attributes:
        required: Whether the object must have it.
    """

    name: str
    value: Field | Group
    required: bool


@dataclass(frozen=True, slots=True)
class Group:
    """An object of fields.

    Attributes:
        pointer: JSON pointer to it; empty for the whole answer.
        members: Its properties, in the order of the schema.
    """

    pointer: str
    members: tuple[Member, ...]
    nullable: bool


def read_fields(text: str) -> Field | Group:
    """Returns the fields that a schema asks for.

    Raises:
        InvalidRequest: It is not one, or asks for something that no span of a document is; names the place.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("json_schema", f"is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise _refusal("", "must be an object with `properties`, or a schema of one value")
    read = _read(schema, schema, "", "", 0)
    if sum(1 for _ in fields_of(read)) > MAX_FIELDS:
        raise _refusal("", f"has more than {MAX_FIELDS} fields")
    return read


def fields_of(read: Field | Group) -> Iterator[Field]:
    """Yields all fields, in the order of the schema."""
    if isinstance(read, Field):
        yield read
        return
    for member in read.members:
        yield from fields_of(member.value)


def _read(schema: Mapping[str, Any], root: Mapping[str, Any], pointer: str, name: str, depth: int) -> Field | Group:
    if depth > MAX_DEPTH:
        raise _refusal(pointer, f"is nested more than {MAX_DEPTH} deep")
    own, nullable = _one_type(schema, root, pointer, depth)
    kind = own.get("type", "string" if "enum" in own or "const" in own else None)
    words = " ".join(_words(name, schema, own))
    if kind == "object" or (kind is None and "properties" in own):
        return _group(own, root, pointer, depth, nullable)
    if kind != "array":
        return _field(own, own, pointer, words, False, nullable)
    items = own.get("items")
    if not isinstance(items, dict):
        raise _refusal(pointer, "is a list without `items`")
    item, _ = _one_type(items, root, pointer, depth)
    return _field({**own, "items": item}, item, pointer, " ".join([words, *_words("", items, item)]), True, nullable)


def _group(own: Mapping[str, Any], root: Mapping[str, Any], pointer: str, depth: int, nullable: bool) -> Group:
    properties = own.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise _refusal(pointer, "is an object without `properties`")
    required = own.get("required", ())
    members = []
    for name, each in properties.items():
        place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if not isinstance(each, dict):
            raise _refusal(place, "must be an object")
        members.append(Member(name, _read(each, root, place, name, depth + 1), name in required))
    return Group(pointer, tuple(members), nullable)


def _field(
    own: Mapping[str, Any], item: Mapping[str, Any], pointer: str, words: str, many: bool, nullable: bool
) -> Field:
    kind = item.get("type", "string" if "enum" in item or "const" in item else None)
    choices = item.get("enum", [item["const"]] if "const" in item else [])
    if kind not in ("string", "number", "integer"):
        problem = "is true or false, which no span of a document is" if kind == "boolean" else f"is of type {kind}"
        raise _refusal(pointer, f"{problem}; use a string, a number, an integer, or an enum of strings")
    if not isinstance(choices, list) or len(choices) > MAX_CHOICES:
        raise _refusal(pointer, f"must have an enum of at most {MAX_CHOICES} values")
    types = {"number": ValueType.NUMBER, "integer": ValueType.INTEGER}
    value_type = types.get(kind, ValueType.DATE if item.get("format") == "date" else ValueType.TEXT)
    texts = tuple(each for each in choices if isinstance(each, str) and each.strip())
    return Field(pointer, words, value_type, own, texts, many, item, "pattern" in item, nullable)


def _one_type(
    schema: Mapping[str, Any], root: Mapping[str, Any], pointer: str, depth: int
) -> tuple[Mapping[str, Any], bool]:
    """Returns a schema of one type, without references, and whether null is legal beside it."""
    nullable = False
    for _ in range(MAX_DEPTH):
        if "$ref" in schema:
            schema = {**_referenced(schema["$ref"], root, pointer), **{k: v for k, v in schema.items() if k != "$ref"}}
            continue
        forms = schema.get("anyOf", schema.get("oneOf"))
        if forms is not None:
            others = [each for each in forms if each != {"type": "null"}] if isinstance(forms, list) else []
            if len(others) != 1 or not isinstance(others[0], dict):
                raise _refusal(pointer, "has several forms; one type, or null beside it, can be filled")
            nullable = nullable or len(others) < len(forms)
            schema = {**{k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "default")}, **others[0]}
            continue
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            if len(kinds) != 1:
                raise _refusal(pointer, "has several types; one type, or null beside it, can be filled")
            nullable = nullable or len(kinds) < len(kind)
            schema = {**schema, "type": kinds[0]}
        if isinstance(schema.get("enum"), list) and None in schema["enum"]:
            nullable, schema = True, {**schema, "enum": [each for each in schema["enum"] if each is not None]}
        return schema, nullable
    raise _refusal(pointer, f"follows more than {MAX_DEPTH} references")


def _referenced(reference: object, root: Mapping[str, Any], pointer: str) -> Mapping[str, Any]:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise _refusal(pointer, f"refers to {reference!r}; only places in the schema itself can be")
    place: Any = root
    for part in reference[2:].split("/"):
        place = place.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise _refusal(pointer, f"refers to {reference!r}, which the schema does not have")
    return place


def _words(name: str, *schemas: Mapping[str, Any]) -> Sequence[str]:
    given = [_WORD_PARTS.sub(" ", name)]
    given += (str(schema[key]) for schema in schemas for key in ("title", "description") if key in schema)
    return [*dict.fromkeys(filter(None, given))]


def _refusal(pointer: str, problem: str) -> InvalidRequest:
    return InvalidRequest("json_schema", f"{pointer or 'the schema'} {problem} (mode extract)")
