"""Decodes requests by the types of their fields: dataclasses, whose fields may carry bounds; pure.

A type and its bounds are also the JSON Schema of a field (``schema``), so that no bound is written twice.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Final, Union, get_args, get_origin

from edge_rag.core.documents.checks import checked_filter
from edge_rag.core.documents.filters import MAX_REMOTE_FILTER_CHARACTERS, Filter
from edge_rag.core.documents.metadata import validate_moment
from edge_rag.core.limits.request_fields import (
    MAX_NAME_CHARACTERS,
    bounded_float,
    bounded_int,
    parse_collection_name,
    parse_document_name,
    parse_job_id,
)
from edge_rag.core.shapes.encoder import is_any_value, members, options, plain_type
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.fields import check_names, chosen, field_path, typed_value

_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number.

    Attributes:
        least: Least value.
        most: Largest value.
    """

    least: float
    most: float

    def checked(self, field: str, value: Any) -> Any:
        """Returns the number.

        Raises:
            InvalidRequest: It is out of range.
        """
        if isinstance(value, int):
            return bounded_int(field, value, int(self.least), int(self.most))
        return bounded_float(field, value, self.least, self.most)

    def keywords(self) -> dict[str, Any]:
        """Returns the keywords of JSON Schema."""
        return {"minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Legal:
    """What a text or an object must be.

    Attributes:
        check: Returns the legal value of a field's name and value, or raises InvalidRequest.
        schema: Keywords of JSON Schema that it implies.
    """

    check: Callable[[str, Any], Any]
    schema: tuple[tuple[str, Any], ...] = ()

    def checked(self, field: str, value: Any) -> Any:
        """Returns the legal value.

        Raises:
            InvalidRequest: It is none.
        """
        return self.check(field, value)

    def keywords(self) -> dict[str, Any]:
        """Returns the keywords of JSON Schema."""
        return dict(self.schema)


@dataclass(frozen=True, slots=True)
class Changes:
    """Marks a mapping: the fields of a dataclass that an object gives, all of which have defaults.

    Attributes:
        kind: The dataclass.
    """

    kind: type


Collection = Annotated[
    str,
    Legal(
        lambda field, value: parse_collection_name(value, field),
        (("pattern", rf"^[a-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}$"),),
    ),
]
"""Name of a collection."""

Document = Annotated[str, Legal(parse_document_name, (("minLength", 1), ("maxLength", 1024)))]
"""Id or name of a document."""

JobKey = Annotated[str, Legal(lambda field, value: parse_job_id(value, field), (("pattern", "^[0-9a-f]{1,64}$"),))]
"""Id of a job."""


def _parsed_filter(field: str, text: Any) -> Filter:
    if len(text) > MAX_REMOTE_FILTER_CHARACTERS:
        raise InvalidRequest(field, f"has more than {MAX_REMOTE_FILTER_CHARACTERS:,} characters")
    # The parser of filters takes time and memory to import, which many boxes never need.
    from edge_rag.core.documents.filter_text import parse_filter

    return checked_filter(parse_filter(text), field)


Condition = Annotated[str, Legal(_parsed_filter, (("minLength", 1), ("maxLength", MAX_REMOTE_FILTER_CHARACTERS)))]
"""A filter as text; decoding makes it a ``Filter``."""


def decoded_filter(decoded: Any) -> Filter | None:
    """Returns the filter that decoding made of a condition."""
    found: Filter | None = decoded
    return found


def decode(hint: Any, value: Any, field: str, text: bool = False) -> Any:
    """Returns the legal value that JSON stands for.

    Args:
        hint: Type of the value.
        value: JSON, or a text of a path or query string.
        field: Its name in errors; empty for a whole body.
        text: Whether it is such a text; numbers and truth values are then parsed from it.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    for mark in marks:
        if isinstance(mark, Changes):
            return _changes(mark.kind, value, field)
    plain = plain_type(hint)
    kinds = options(plain)
    if get_origin(plain) in (Union, types.UnionType) and not is_any_value(kinds):
        if value is None:
            return None
        plain = kinds[0]
        marks = (*marks, *(get_args(plain)[1:] if get_origin(plain) is Annotated else ()))
        plain = plain_type(plain)
    decoded = _any_value(value, field) if is_any_value(kinds) else _single(plain, value, field, text)
    for mark in marks:
        if isinstance(mark, Between | Legal):
            decoded = mark.checked(field, decoded)
    return decoded


def decode_fields(kind: type, value: Mapping[str, Any], prefix: str, text: bool = False) -> dict[str, Any]:
    """Returns the values of those fields of a dataclass that an object has, by field.

    Args:
        kind: The dataclass.
        value: The object.
        prefix: Its name in errors; empty for the body.
        text: Whether its values are texts of a path or query string.

    Raises:
        InvalidRequest: A field is unknown or unusable, or one without a default is missing.
    """
    known = {member.name: member for member in members(kind)}
    check_names(value, known, prefix)
    required = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    found: dict[str, Any] = {}
    for name, member in known.items():
        if name in value:
            found[member.field] = decode(member.hint, value[name], field_path(prefix, name), text)
        elif member.field in required:
            raise InvalidRequest(field_path(prefix, name), "is missing")
    return found


def _changes(kind: type, value: Any, field: str) -> dict[str, Any]:
    return decode_fields(kind, typed_value(dict, value, field), field)


def _single(hint: Any, value: Any, field: str, text: bool) -> Any:
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in (tuple, frozenset):
        given = typed_value(list, value, field)
        found = origin(decode(arguments[0], each, f"{field}[{index}]") for index, each in enumerate(given))
        if len(found) < len(given):
            raise InvalidRequest(field, "must not hold anything twice")
        return found
    if origin in (dict, Mapping):
        named = typed_value(dict, value, field)
        if arguments[1] is Any:
            return named
        return {name: decode(arguments[1], each, f"{field}[{name[:64]!r}]") for name, each in named.items()}
    if is_dataclass(origin):
        assert isinstance(origin, type)
        return origin(**decode_fields(origin, typed_value(dict, value, field), field))
    if issubclass(origin, datetime):
        return _moment(value, field)
    if issubclass(origin, Enum):
        return _choice(origin, value, field)
    return typed_value(origin, _read(origin, value) if text else value, field)


def _read(kind: type, value: str) -> Any:
    """Returns the number or truth value that a text is; the text if it is none."""
    if kind is bool:
        return {"true": True, "false": False}.get(value, value)
    if kind in (int, float) and value.isascii() and len(value) <= _MOST_DIGITS:
        digits = value.removeprefix("-")
        if digits.isdigit():
            return int(value)
        if kind is float and digits.replace(".", "", 1).isdigit():
            return float(value)
    return value


def _choice(kind: type[Enum], value: Any, field: str) -> Enum:
    by_name = {each.name.lower() if issubclass(kind, IntEnum) else each.value: each for each in kind}
    return chosen(by_name, value, field)


def _moment(value: Any, field: str) -> datetime:
    """Returns a moment in UTC, of ISO 8601 with a time zone."""
    try:
        moment = datetime.fromisoformat(typed_value(str, value, field))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(field, "must be a date and time with a time zone, such as 2027-01-31T00:00:00Z")
    return validate_moment(field, moment).astimezone(UTC)


def _any_value(value: Any, field: str) -> Any:
    """Returns a value of metadata: a text that is a moment with a time zone, as responses write it, is that."""
    match value:
        case str():
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                return value
            return value if moment.tzinfo is None or "T" not in value else validate_moment(field, moment)
        case bool():
            return value
        case int() | float():
            return typed_value(float, value, field)
        case _:
            raise InvalidRequest(field, "must be a text, a number, true or false")
