"""Checks of filters and of collections' settings that clients send over any transport.

They return legal values in normal form and refuse others by the name that the caller knows a field by.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from edge_rag.core.documents.collection import CollectionSettings, FusionWeights, RecencyBoost, ValueBoost
from edge_rag.core.documents.filters import (
    MAX_DEPTH,
    MAX_FILTERS,
    MAX_VALUES,
    AllOf,
    AnyOf,
    BuiltinField,
    Comparator,
    Comparison,
    Filter,
    FilterField,
    FilterValue,
    MetadataField,
    Negated,
    OneOf,
    Prefix,
    Present,
)
from edge_rag.core.documents.metadata import MAX_TEXT_CHARACTERS, validate_key, validate_number, validate_text
from edge_rag.core.documents.synonyms import parse_synonyms
from edge_rag.core.limits.request_fields import parse_chunk_tokens, parse_description, parse_labels, parse_title
from edge_rag.errors import InvalidRequest

MAX_BOOSTS: Final = 32
"""Most value boosts of a collection."""

_KINDS: Final = {str: "a text", float: "a number", datetime: "a date"}


def checked_filter(condition: Filter, path: str = "filter") -> Filter:
    """Returns a filter."""
    return _FilterCheck(path).filter(condition, 1)


@dataclass(slots=True)
class _FilterCheck:
    """Checks one filter and counts its parts."""

    path: str
    filters: int = 0
    values: int = 0

    def filter(self, condition: Filter, depth: int) -> Filter:
        self.filters += 1
        check_size(self.path, depth, self.filters)
        match condition:
            case AllOf(filters):
                return AllOf(tuple(self.filter(each, depth + 1) for each in filters))
            case AnyOf(filters):
                return AnyOf(tuple(self.filter(each, depth + 1) for each in filters))
            case Negated(negated):
                return Negated(self.filter(negated, depth + 1))
            case Comparison(field, comparator, value):
                return checked_comparison(self.path, Comparison(field, comparator, self._value(field, value)))
            case OneOf(field, values):
                return OneOf(checked_field(field), tuple(self._value(field, each) for each in values))
            case Prefix(field, prefix):
                return checked_prefix(self.path, field, prefix)
            case Present(field):
                return Present(checked_field(field))

    def _value(self, field: FilterField, value: FilterValue) -> FilterValue:
        self.values += 1
        check_values(self.path, self.values)
        return checked_value(self.path, checked_field(field), value)


def check_size(path: str, depth: int, filters: int) -> None:
    """Checks how deep a part of a filter lies, and how many parts there are so far."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(path, f"lies deeper than {MAX_DEPTH} filters")
    if filters > MAX_FILTERS:
        raise InvalidRequest(path, f"is one filter too many, at most {MAX_FILTERS} are allowed")


def check_values(path: str, values: int) -> None:
    """Checks how many values a filter has so far."""
    if values > MAX_VALUES:
        raise InvalidRequest(path, f"is one value too many, at most {MAX_VALUES:,} are allowed")


def checked_comparison(path: str, comparison: Comparison) -> Comparison:
    """Returns a comparison."""
    if isinstance(comparison.value, bool) and comparison.comparator is not Comparator.EQUAL:
        raise InvalidRequest(f"{path}.comparator", "true and false have no order, they are equal or not")
    return comparison


def checked_field(field: FilterField) -> FilterField:
    """Returns a field."""
    return field if isinstance(field, BuiltinField) else MetadataField(validate_key(field.key))


def checked_value(path: str, field: FilterField, value: FilterValue) -> FilterValue:
    """Returns a value that a field is compared with."""
    if isinstance(field, BuiltinField) and type(value) is not field.kind:
        raise InvalidRequest(path, f"must be {_KINDS[field.kind]}, as {field.value} is")
    match value:
        case bool() | datetime():
            return value
        case float():
            return validate_number(path, value)
        case _:
            return _bounded(path, value) if isinstance(field, BuiltinField) else validate_text(path, value)


def checked_prefix(path: str, field: FilterField, prefix: str) -> Prefix:
    """Returns a comparison with a beginning."""
    if isinstance(field, BuiltinField) and field.kind is not str:
        raise InvalidRequest(f"{path}.field", f"{field.value} is not a text")
    bounded = _bounded(f"{path}.prefix", prefix)
    return Prefix(
        checked_field(field), bounded if isinstance(field, BuiltinField) else unicodedata.normalize("NFC", bounded)
    )


def _bounded(path: str, text: str) -> str:
    if not 1 <= len(text) <= MAX_TEXT_CHARACTERS:
        raise InvalidRequest(path, f"must be 1 to {MAX_TEXT_CHARACTERS:,} characters, has {len(text):,}")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidRequest(path, "must not hold control characters")
    return text


def checked_settings(settings: CollectionSettings, key: str = "key") -> CollectionSettings:
    """Returns the settings of a collection."""
    parse_synonyms("settings.synonyms", settings.synonyms)
    return replace(
        settings,
        description=parse_description("settings.description", settings.description),
        fusion=_fusion(settings.fusion),
        chunk_tokens=None
        if settings.chunk_tokens is None
        else parse_chunk_tokens("settings.chunk_tokens", settings.chunk_tokens),
        recency=None if settings.recency is None else _recency(settings.recency, key),
        boosts=_boosts(settings.boosts, key),
        title=parse_title("settings.title", settings.title),
        labels=parse_labels("settings.labels", settings.labels),
    )


def _fusion(given: FusionWeights) -> FusionWeights:
    field = "settings.fusion"
    _real(f"{field}.dense", given.dense, 0, 1000)
    _real(f"{field}.lexical", given.lexical, 0, 1000)
    _real(f"{field}.k", given.k, 1, 10_000)
    if given.dense == 0 and given.lexical == 0:
        raise InvalidRequest(field, "dense and lexical must not both be 0")
    return given


def _recency(given: RecencyBoost, key: str) -> RecencyBoost:
    field = "settings.recency"
    return RecencyBoost(
        None if given.key is None else _checked_key(f"{field}.{key}", given.key),
        _real(f"{field}.half_life_days", given.half_life_days, 0, 1_000_000, above=True),
        _real(f"{field}.weight", given.weight, 0, 100, above=True),
    )


def _boosts(given: tuple[ValueBoost, ...], key: str) -> tuple[ValueBoost, ...]:
    if len(given) > MAX_BOOSTS:
        raise InvalidRequest("settings.boosts", f"at most {MAX_BOOSTS}, has {len(given):,}")
    return tuple(_boost(f"settings.boosts[{index}]", boost, key) for index, boost in enumerate(given))


def _boost(field: str, given: ValueBoost, key: str) -> ValueBoost:
    named = MetadataField(_checked_key(f"{field}.{key}", given.key))
    value = checked_value(f"{field}.value", named, given.value)
    return ValueBoost(named.key, value, _real(f"{field}.factor", given.factor, 0.01, 100))


def _checked_key(field: str, key: str) -> str:
    try:
        return validate_key(key)
    except InvalidRequest as error:
        raise InvalidRequest(field, error.problem) from error


def _real(field: str, value: float, least: float, most: float, *, above: bool = False) -> float:
    if not least <= value <= most or (above and value == least):
        raise InvalidRequest(field, f"must be {'above ' if above else ''}{least:g} to {most:,g}, is {value:g}")
    return value
