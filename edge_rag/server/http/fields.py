"""Fields of JSON bodies: typed, named in errors, and nothing unknown; pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeVar

from edge_rag.errors import InvalidRequest, UndecodableMessage

_FLOAT_BOUND: Final = 1e9
_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    dict: "an object",
    list: "an array",
}

_T = TypeVar("_T")


def parse_json(data: bytes) -> dict[str, Any]:
    """Returns the JSON object that a request's body is."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()  # halves of surrogate pairs are no text
    except (ValueError, RecursionError):
        raise UndecodableMessage from None
    if not isinstance(value, dict):
        raise UndecodableMessage
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def field_path(prefix: str, name: str) -> str:
    """Returns the name of a field in errors; ``prefix`` is that of its object, empty for the body."""
    return f"{prefix}.{name[:256]}" if prefix else name[:256]


def check_names(value: Mapping[str, Any], known: Collection[str], prefix: str) -> None:
    """Checks that an object has known fields only."""
    for name in value:
        if name not in known:
            raise InvalidRequest(field_path(prefix, name), "is not supported; leave it out")


def check_supported(
    body: Mapping[str, Any], read: Collection[str], neutral: Mapping[str, Sequence[object]], prefix: str = ""
) -> None:
    """Checks that the fields that are not read ask for nothing.

    Args:
        prefix: Name of the object in errors; empty for the body.
    """
    for name, value in body.items():
        if name in read or value is None:
            continue
        if not any(value == each and _alike(value, each) for each in neutral.get(name, ())):
            raise InvalidRequest(field_path(prefix, name), "is not supported; leave it out")


def _alike(value: object, neutral: object) -> bool:
    """Returns whether equal values are so as JSON; in Python True is 1."""
    return isinstance(value, bool) == isinstance(neutral, bool)


def typed_value(kind: type[_T], value: object, field: str) -> _T:
    """Returns a value of a type. A whole number is a float too, and a boolean is no number.

    Args:
        kind: ``str``, ``bool``, ``int``, ``float``, ``dict`` or ``list``.
    """
    if kind is float and isinstance(value, int) and type(value) is int and abs(value) <= _FLOAT_BOUND:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not isfinite(value)):
        raise InvalidRequest(field, f"must be {_NAMES[kind]}")
    return value


def chosen(by_name: Mapping[str, _T], value: object, field: str) -> _T:
    """Returns the value that a name stands for."""
    if not isinstance(value, str) or value not in by_name:
        raise InvalidRequest(field, f"must be one of {', '.join(by_name)}")
    return by_name[value]


def typed(value: Mapping[str, Any], name: str, kind: type[_T], prefix: str = "") -> _T | None:
    """Returns a field of a type, as ``typed_value``; None if it is absent or null."""
    found = value.get(name)
    return None if found is None else typed_value(kind, found, field_path(prefix, name))


def choice(value: Mapping[str, Any], name: str, by_name: Mapping[str, _T], prefix: str = "") -> _T | None:
    """Returns the value that a field names; None if it is absent or null."""
    text = typed(value, name, str, prefix)
    return None if text is None else chosen(by_name, text, field_path(prefix, name))
