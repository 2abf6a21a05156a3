"""Filters: conditions on a passage and the document it is from; pure values.

A comparison holds where the field has a value of the same type that compares so. A value of another type, or none,
meets no comparison, and of tags one that does is enough. Everything else follows: ``Negated`` holds where its filter
does not, so a negated comparison also holds where there is no value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

DEEPEST: Final = 16
"""Most filters inside each other, the outermost counted."""

MOST_FILTERS: Final = 256
"""Most filters of one tree."""

MOST_VALUES: Final = 1024
"""Most values of all comparisons and sets of one tree together."""

FilterValue = str | float | bool | datetime
"""What a field is compared with; moments in UTC."""


class BuiltinField(Enum):
    """What every document or passage has without metadata; the value is its name for people."""

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
    """What a document's metadata holds under a key.

    Attributes:
        key: The key.
    """

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
    """The field's value, the comparator, the value given; truth values are only ever equal or not."""

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
    """The field's value is a text that begins so; at least one character."""

    field: FilterField
    prefix: str


@dataclass(frozen=True, slots=True)
class Present:
    """The field has a value, of any type."""

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


Filter = Comparison | OneOf | Prefix | Present | AllOf | AnyOf | Negated
