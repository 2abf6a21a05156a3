"""Fields of JSON bodies: typed, named in errors, and nothing unknown; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from edge_rag.errors import InvalidRequest, UndecodableMessage

_FLOAT_BOUND: Final = 1e9

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


def check_names(value: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    """Checks that an object has known fields only."""
    for name in value:
        if name not in known:
            raise InvalidRequest(f"{prefix}.{name[:256]}", "is not supported; leave it out")


def typed(value: Mapping[str, Any], name: str, kind: type[_T], prefix: str = "") -> _T | None:
    """Returns a field; None if it is absent or null. A whole number is a float too, and a boolean is no number.

    Args:
        kind: ``str``, ``bool``, ``int``, ``float``, ``dict`` or ``list``.
        prefix: Name of the object in errors; empty for the body.
    """
    found = value.get(name)
    if found is None:
        return None
    field = f"{prefix}.{name}" if prefix else name
    if kind is float and type(found) is int and abs(found) <= _FLOAT_BOUND:
        found = float(found)
    if type(found) is not kind:
        names = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object"}
        raise InvalidRequest(field, f"must be {names.get(kind, 'an array')}")
    return found


def choice(value: Mapping[str, Any], name: str, by_name: Mapping[str, _T], prefix: str = "") -> _T | None:
    """Returns what a field names; None if it is absent or null."""
    text = typed(value, name, str, prefix)
    if text is None:
        return None
    if text not in by_name:
        raise InvalidRequest(f"{prefix}.{name}" if prefix else name, f"must be one of {', '.join(by_name)}")
    return by_name[text]
