"""Filters: conditions on a passage and its document; pure values.

A comparison holds if the field has a value of the same type that satisfies it. A value of another type, or none,
satisfies no comparison; of several tags one is enough. ``Negated`` holds if its filter does not, so a negated
comparison also holds without a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

MAX_REMOTE_FILTER_CHARACTERS: Final = 4096
"""Longest filter that the daemon takes as text. It is parsed between the events of other calls, up to 0.1 s."""

MAX_DEPTH: Final = 16
"""Most nested filters, the outermost included."""

MAX_FILTERS: Final = 256
"""Most filters in one tree."""

MAX_VALUES: Final = 1024
"""Most values of all comparisons and sets in one tree."""

FilterValue = str | float | bool | datetime
"""A value that a field is compared with; moments in UTC."""


class BuiltinField(Enum):
    """Fields that every document or passage has besides metadata; the value is the name shown to people."""

    NAME = "name"
    MEDIA_TYPE = "media_type"
    PAGE = "page"
    INGESTED_AT = "ingested_at"

    @property
    def kind(self) -> type[str] | type[float] | type[datetime]:
        """Type of its values."""
        match self:
            case BuiltinField.NAME | BuiltinField.MEDIA_TYPE:
                return str
            case BuiltinField.PAGE:
                return float
            case BuiltinField.INGESTED_AT:
                return datetime


@dataclass(frozen=True, slots=True)
class MetadataField:
    """A field of a document's metadata."""

    key: str


FilterField = BuiltinField | MetadataField


class Comparator(Enum):
    """How two values compare; texts by code points."""

    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the field's value with a value; truth values can only be equal or not."""

    field: FilterField
    comparator: Comparator
    value: FilterValue


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field's value equals one of at least one value."""

    field: FilterField
    values: tuple[FilterValue, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The field's value is a text that starts with a prefix of at least one character."""

    field: FilterField
    prefix: str


@dataclass(frozen=True, slots=True)
class Present:
    """The field has a value of any type."""

    field: FilterField


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of at least one filter hold."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of at least one filter holds."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Negated:
    """The filter does not hold."""

    filter: Filter


def metadata_keys(filter_: Filter) -> frozenset[str]:
    """Returns the metadata keys that a filter names."""
    match filter_:
        case AllOf(filters=parts) | AnyOf(filters=parts):
            return frozenset().union(*map(metadata_keys, parts))
        case Negated(filter=inner):
            return metadata_keys(inner)
        case _:
            return frozenset({filter_.field.key} if isinstance(filter_.field, MetadataField) else ())


Filter = Comparison | OneOf | Prefix | Present | AllOf | AnyOf | Negated
