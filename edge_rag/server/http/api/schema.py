"""JSON Schemas of requests and responses, from the types, their bounds and their docstrings; pure."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

from edge_rag.core.shapes.encoder import Member, encode, is_any_value, members, options, plain_type
from edge_rag.core.shapes.views import KEYS, VIEWS
from edge_rag.server.http.api.decode import Between, Changes, Legal

_REFERENCE: Final = "#/components/schemas/"
_TYPES: Final[Mapping[Any, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ANY_VALUE: Final = {"type": ["string", "number", "boolean", "array"], "items": {"type": "string"}}
_FIELD: Final = re.compile(r"^ {4}(\w+): (.*)$")


class Schemas:
    """Makes schemas, and collects those of dataclasses, which others refer to.

    Args:
        requests: Whether the schemas are of requests: members with defaults may be absent. Members of responses are
            present unless they are optional.

    Attributes:
        components: Schemas of dataclasses by name.
    """

    def __init__(self, requests: bool) -> None:
        self.components: dict[str, Any] = {}
        self._requests = requests

    def of(self, hint: Any) -> dict[str, Any]:
        """Returns the schema of a type."""
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        for mark in marks:
            if isinstance(mark, Changes):
                return self.of(mark.kind)
        schema = self._plain(plain_type(hint))
        for mark in marks:
            if isinstance(mark, Between | Legal):
                schema |= _keywords(mark, schema)
        return schema

    def members(self, kind: type, shown: Sequence[Member]) -> dict[str, Any]:
        """Returns the schema of an object with some members of a dataclass."""
        descriptions = attributes(kind)
        properties = {}
        for member in shown:
            schema = self.of(member.hint)
            if member.field in descriptions:
                schema = {**schema, "description": descriptions[member.field]}
            if self._requests and (default := default_of(kind, member.field)) is not None:
                schema["default"] = default
            properties[member.name] = schema
        required = [member.name for member in shown if self._is_required(kind, member)]
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            found["required"] = required
        if self._requests:
            found["additionalProperties"] = False
        return found

    def _is_required(self, kind: type, member: Member) -> bool:
        return has_no_default(kind, member.field) if self._requests else not member.optional

    def _plain(self, hint: Any) -> dict[str, Any]:
        kinds = options(hint)
        if is_any_value(kinds):
            return dict(_ANY_VALUE)
        if get_origin(hint) in (Union, types.UnionType):
            inner = [self.of(each) for each in kinds]
            nullable = type(None) in get_args(hint)
            if len(inner) == 1 and not nullable:
                return inner[0]
            if len(inner) == 1 and isinstance(inner[0].get("type"), str) and "enum" not in inner[0]:
                return {**inner[0], "type": [inner[0]["type"], "null"]}
            return {"anyOf": [*inner, *([{"type": "null"}] if nullable else [])]}
        return self._single(hint)

    def _single(self, hint: Any) -> dict[str, Any]:
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if origin in (tuple, list, Sequence) and arguments:
            return self._keyed(arguments[0]) if arguments[0] in KEYS else self._array(arguments[0])
        if origin is frozenset:
            return {**self._array(arguments[0]), "uniqueItems": True}
        if origin in (dict, Mapping):
            return self._mapping(arguments)
        if isinstance(origin, type):
            if issubclass(origin, Enum):
                return {"type": "string", "enum": _values(origin)}
            if is_dataclass(origin):
                return self._component(origin)
            if issubclass(origin, datetime):
                return {"type": "string", "format": "date-time"}
            if issubclass(origin, Path):
                return {"type": "string"}
        if origin is float and not self._requests:
            return {"type": ["number", "null"]}  # a number that is not finite
        return {"type": _TYPES[origin]} if origin in _TYPES else {}

    def _array(self, hint: Any) -> dict[str, Any]:
        return {"type": "array", "items": self.of(hint)}

    def _mapping(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if not arguments or arguments[1] is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": self.of(arguments[1])}

    def _keyed(self, kind: type) -> dict[str, Any]:
        rest = [member for member in members(kind) if member.field != KEYS[kind]]
        inner = self.of(rest[0].hint) if len(rest) == 1 else self.members(kind, rest)
        return {"type": "object", "additionalProperties": inner}

    def _component(self, kind: type) -> dict[str, Any]:
        shown: type = VIEWS.get(kind, kind)
        name = shown.__name__.removesuffix("View") + ("Input" if self._requests else "")
        if name not in self.components:
            self.components[name] = {}
            self.components[name] = {"description": summary(shown), **self.members(shown, members(shown))}
        return {"$ref": _REFERENCE + name}


def _keywords(mark: Between | Legal, schema: Mapping[str, Any]) -> dict[str, Any]:
    whole = schema.get("type") in ("integer", ["integer", "null"])
    return {name: int(value) if whole else value for name, value in mark.keywords().items()}


def _values(kind: type[Enum]) -> list[str]:
    return [each.name.lower() if issubclass(kind, IntEnum) else each.value for each in kind]


def has_no_default(kind: type, name: str) -> bool:
    """Whether a field of a dataclass has to be given."""
    for each in fields(kind):
        if each.name == name:
            return each.default is MISSING and each.default_factory is MISSING
    return False


def default_of(kind: type, name: str) -> Any:
    """Returns the default of a field as JSON; None if it has none, or that is its default."""
    for each in fields(kind):
        if each.name == name and each.default is not MISSING:
            return encode(each.default)
    return None


def summary(described: Any) -> str:
    """Returns the first paragraph of a docstring, as Markdown on one line."""
    return _markdown(inspect.cleandoc(described.__doc__ or "").partition("\n\n")[0])


def details(described: Any) -> str:
    """Returns the further paragraphs of a docstring, as Markdown."""
    paragraphs = inspect.cleandoc(described.__doc__ or "").split("\n\n")[1:]
    return "\n\n".join(_markdown(each) for each in paragraphs if not each.startswith(("Args:", "Attributes:")))


def attributes(kind: type) -> dict[str, str]:
    """Returns what the docstrings of a dataclass, its bases and its properties say about fields, as Markdown."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= dict(_attributes(inspect.cleandoc(base.__dict__.get("__doc__") or "")))
        properties = {name: each for name, each in vars(base).items() if isinstance(each, property)}
        found |= {name: summary(each) for name, each in properties.items()}
    return found


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    section = text.partition("Attributes:\n")[2].partition("\n\n")[0]
    name, lines = "", [""]
    for line in section.splitlines():
        if started := _FIELD.match(line):
            if name:
                yield name, _markdown(" ".join(lines))
            name, lines = started[1], [started[2]]
        else:
            lines.append(line.strip())
    if name:
        yield name, _markdown(" ".join(lines))


def _markdown(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\bNone\b", "null", plain.replace("``", "`"))
