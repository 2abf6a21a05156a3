"""Encodes values as JSON by the types of their fields, so that there is one shape of each."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum, IntEnum
from functools import cache
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

from edge_rag.core.ids import Unrecognized
from edge_rag.core.shapes.views import KEYS, SHAPES, VIEWS, Shape

Encoder = Callable[[Any], Any]
"""Returns a value as JSON: objects are dicts, arrays are lists."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a JSON object.

    Attributes:
        optional: Whether it is absent where the value is None.
    """

    name: str
    field: str
    hint: Any
    optional: bool = False


def encode(value: Any) -> Any:
    """Returns a value as JSON. The shape of a dataclass is its fields, but for what ``views`` says.

    Enums are their values, priorities their names in lower case, times ISO 8601 in UTC, sets sorted arrays, numbers
    that are not finite null. Counts by the values of an enum have each of these. Metadata are sorted by key, and
    their whole numbers are integers.
    """
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    hint: Any = type(value)
    return _encoder(hint)(value)


@cache
def members(kind: type) -> tuple[Member, ...]:
    """Returns the members of the JSON object that a dataclass is."""
    hints = get_type_hints(kind, include_extras=True)
    shape = SHAPES.get(kind, Shape())
    given = [field.name for field in fields(kind) if field.name not in shape.without]
    found = [Member(shape.names.get(name, name), name, hints[name], name in shape.optional) for name in given]
    for name in shape.computed:
        returned = get_type_hints(getattr(kind, name).fget)["return"]
        found.append(Member(name, name, returned))
    return tuple(found)


def plain_type(hint: Any) -> Any:
    """Returns a type without annotations and names of its own."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return hint


def options(hint: Any) -> tuple[Any, ...]:
    """Returns the types of a union besides None and values that this version does not know; else the type itself."""
    if get_origin(hint) not in (Union, types.UnionType):
        return (hint,)
    return tuple(each for each in get_args(hint) if each not in (type(None), Unrecognized))


def is_any_value(kinds: Sequence[Any]) -> bool:
    """Whether these are the types of a value of any type, as metadata have."""
    return str in kinds and float in kinds


@cache
def _encoder(hint: Any) -> Encoder:
    hint = plain_type(hint)
    kinds = options(hint)
    if is_any_value(kinds):
        return _any_value
    if len(kinds) > 1:
        return encode
    if get_origin(hint) in (Union, types.UnionType):
        inner = _encoder(kinds[0])
        return lambda value: None if value is None else inner(value)
    return _single(hint)


def _single(hint: Any) -> Encoder:
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in (tuple, list, Sequence) and arguments:
        return _keyed(arguments[0]) if arguments[0] in KEYS else _several(arguments[0])
    if origin is frozenset:
        inner = _encoder(arguments[0])
        return lambda value: sorted(map(inner, value))
    if origin in (dict, Mapping) and arguments:
        return _mapping(*arguments)
    if origin is float:
        return lambda value: value if isfinite(value) else None
    if isinstance(origin, type):
        if issubclass(origin, Enum):
            return _enum
        if is_dataclass(origin):
            return _object(origin)
        if issubclass(origin, datetime):
            return lambda value: value.isoformat()
        if issubclass(origin, Path):
            return str
    return lambda value: value


def _several(hint: Any) -> Encoder:
    inner = _encoder(hint)
    return lambda value: [inner(each) for each in value]


def _keyed(kind: type) -> Encoder:
    key = KEYS[kind]
    rest = [member for member in members(kind) if member.field != key]
    name = _encoder(next(member.hint for member in members(kind) if member.field == key))
    inner = _encoder(rest[0].hint) if len(rest) == 1 else None
    get_key, get_only = attrgetter(key), attrgetter(rest[0].field)
    others = _members_encoder(rest)
    return lambda value: {
        name(get_key(each)): others(each) if inner is None else inner(get_only(each)) for each in value
    }


def _mapping(key: Any, inner: Any) -> Encoder:
    encoded = _encoder(inner)
    if key is not str and inner is int:
        counted = [each.value for each in options(plain_type(key))[0]]
        return lambda value: dict.fromkeys(counted, 0) | {each.value: count for each, count in value.items()}
    return lambda value: {name: encoded(each) for name, each in sorted(value.items())}


def _enum(value: Any) -> Any:
    return value.name.lower() if isinstance(value, IntEnum) else value.value


def _any_value(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case float() if value.is_integer():
            return int(value)
        case tuple():
            return list(value)
        case _:
            return value


def _object(kind: type) -> Encoder:
    view = VIEWS.get(kind)
    if view is not None:
        shown = _encoder(view)
        return lambda value: shown(view.of(value))
    if kind is Unrecognized:
        return _enum
    return _members_encoder(members(kind))


def _members_encoder(shown: Sequence[Member]) -> Encoder:
    parts = [(member.name, attrgetter(member.field), _encoder(member.hint), member.optional) for member in shown]

    def encoded(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, get, inner, optional in parts:
            part = get(value)
            if not (optional and part is None):
                found[name] = inner(part)
        return found

    return encoded
