"""Metadata filters and searches for documents as SQL, and the chunks that a filter allows in a dense search.

Values from clients become parameters, never part of a statement. BM25 search adds the condition to its own statement.
"""

from __future__ import annotations

import threading
import unicodedata
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.documents.filters import (
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
from edge_rag.core.documents.listing import MAX_SEARCH_WORDS
from edge_rag.storage.database import Database
from edge_rag.storage.statements import Collection, stored_value

SqlValue = str | float | int

_COLUMNS: Final = {
    BuiltinField.NAME: "d.name",
    BuiltinField.MEDIA_TYPE: "d.media_type",
    BuiltinField.PAGE: "k.page",
    BuiltinField.INGESTED_AT: "d.ingested_at",
}
_OPERATORS: Final = {
    Comparator.EQUAL: "=",
    Comparator.LESS: "<",
    Comparator.LESS_OR_EQUAL: "<=",
    Comparator.GREATER: ">",
    Comparator.GREATER_OR_EQUAL: ">=",
}


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A condition of a WHERE clause over chunks ``k`` and documents ``d``; true or false, never NULL.

    Attributes:
        parameters: In order.
    """

    sql: str
    parameters: tuple[SqlValue, ...]


def condition(filter_: Filter, collection: int) -> SqlCondition:
    """Returns the condition that holds for exactly the chunks a filter allows."""
    match filter_:
        case AllOf(filters):
            return joined(" AND ", [condition(each, collection) for each in filters])
        case AnyOf(filters):
            return joined(" OR ", [condition(each, collection) for each in filters])
        case Negated(negated):
            inner = condition(negated, collection)
            return SqlCondition(f"NOT ({inner.sql})", inner.parameters)
        case Comparison(field, comparator, value):
            return _compared(field, _OPERATORS[comparator], value, collection)
        case OneOf(field, values):
            return joined(" OR ", [_among(field, same, collection) for same in _by_kind(values)])
        case Prefix(field, prefix):
            starts_with = "{0} >= ? AND substr({0}, 1, ?) = ?"
            return _of_field(field, "text", starts_with, (prefix, len(prefix), prefix), collection)
        case Present(field):
            return _present(field, collection)


_OF_COLLECTION: Final = "d.document IN (SELECT document FROM document_metadata WHERE collection = ?"
_DOCUMENTS: Final = f"{_OF_COLLECTION} AND key = ?"


def _compared(field: FilterField, operator: str, value: FilterValue, collection: int) -> SqlCondition:
    kind, stored = _stored(field, value)
    return _of_field(field, kind, f"{{0}} {operator} ?", (stored,), collection)


def _among(field: FilterField, values: tuple[FilterValue, ...], collection: int) -> SqlCondition:
    stored = [_stored(field, value) for value in values]
    marks = ", ".join("?" * len(stored))
    return _of_field(field, stored[0][0], f"{{0}} IN ({marks})", tuple(value for _, value in stored), collection)


def _present(field: FilterField, collection: int) -> SqlCondition:
    match field:
        case MetadataField(key):
            return SqlCondition(f"{_DOCUMENTS})", (collection, key))
        case BuiltinField():
            return SqlCondition(f"{_COLUMNS[field]} IS NOT NULL", ())


def _of_field(
    field: FilterField, kind: str, test: str, parameters: tuple[SqlValue, ...], collection: int
) -> SqlCondition:
    """Builds a test of a field's value, for which ``{0}`` stands in ``test``."""
    match field:
        case MetadataField(key):
            sql = f"{_DOCUMENTS} AND kind = ? AND {test.format('value')})"
            return SqlCondition(sql, (collection, key, kind, *parameters))
        case BuiltinField():
            column = _COLUMNS[field]
            return SqlCondition(f"({column} IS NOT NULL AND {test.format(column)})", parameters)


def _stored(field: FilterField, value: FilterValue) -> tuple[str, SqlValue]:
    if field is BuiltinField.INGESTED_AT and isinstance(value, datetime):
        return "date", value.isoformat()
    return stored_value(value)


def _by_kind(values: tuple[FilterValue, ...]) -> list[tuple[FilterValue, ...]]:
    kinds: dict[str, list[FilterValue]] = {}
    for value in values:
        kinds.setdefault(stored_value(value)[0], []).append(value)
    return [tuple(same) for same in kinds.values()]


def joined(word: str, conditions: list[SqlCondition]) -> SqlCondition:
    sql = word.join(f"({each.sql})" for each in conditions)
    return SqlCondition(sql, tuple(parameter for each in conditions for parameter in each.parameters))


def search_condition(search: str, collection: int) -> SqlCondition:
    """Returns the condition on a document ``d`` that each word is in its name, its title or its metadata.

    Words are compared by GLOB with a class for each letter, since LIKE knows upper and lower case of ASCII only, and
    both as composed and as decomposed characters, since file systems differ in how they write names.
    """
    words = search.split()
    parts = [*words[: MAX_SEARCH_WORDS - 1], " ".join(words[MAX_SEARCH_WORDS - 1 :])]
    return joined(" AND ", [_contained(part, collection) for part in parts if part])


def _contained(word: str, collection: int) -> SqlCondition:
    spellings = {unicodedata.normalize(form, word) for form in ("NFC", "NFD")} | {word}
    patterns = tuple(f"*{''.join(map(_any_case, spelling))}*" for spelling in sorted(spellings))
    tests = " OR ".join("{0} GLOB ?" for _ in patterns)
    in_text = f"kind = 'text' AND ({tests.format('value')})"
    found = [
        SqlCondition(tests.format("d.name"), patterns),
        SqlCondition(tests.format("d.title"), patterns),
        SqlCondition(f"{_OF_COLLECTION} AND {in_text})", (collection, *patterns)),
    ]
    with suppress(ValueError):
        if isfinite(number := float(word)):
            found.append(SqlCondition(f"{_OF_COLLECTION} AND kind = 'number' AND value = ?)", (collection, number)))
    return joined(" OR ", found)


def _any_case(character: str) -> str:
    """Returns a pattern of GLOB for a character in upper and lower case, of those whose other case is one character."""
    cases = {character, *(other for other in (character.lower(), character.upper()) if len(other) == 1)}
    return character if len(cases) == 1 and character not in "*?[" else f"[{''.join(sorted(cases))}]"


_Key = tuple[int, str, SqlCondition]


class AllowedChunks:
    """Reads the chunks that a condition holds for, and caches results. May be used from any thread.

    Every change of a collection changes its generation, so a cached result is never stale.

    Args:
        capacity_bytes: Most memory for cached results; 0 disables the cache.
    """

    def __init__(self, database: Database, capacity_bytes: int = 32 << 20) -> None:
        self._database = database
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._cache: OrderedDict[_Key, NDArray[np.int64]] = OrderedDict()
        self._bytes = 0

    def read(self, collection: Collection, condition: SqlCondition) -> NDArray[np.int64]:
        """Returns the ids of the chunks, int64, ascending."""
        key = (collection.number, collection.generation, condition)
        with self._lock:
            if (cached := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                return cached
        found = self._read(collection.number, condition)
        with self._lock:
            if key not in self._cache and found.nbytes <= self._capacity_bytes:
                self._cache[key] = found
                self._bytes += found.nbytes
                while self._bytes > self._capacity_bytes:
                    self._bytes -= self._cache.popitem(last=False)[1].nbytes
        return found

    def _read(self, collection: int, condition: SqlCondition) -> NDArray[np.int64]:
        with self._database.snapshot() as connection:
            rows = connection.execute(
                "SELECT k.chunk FROM documents d JOIN chunks k ON k.document = d.document "
                f"WHERE d.collection = ? AND ({condition.sql})",
                (collection, *condition.parameters),
            )
            return np.sort(np.fromiter((chunk for (chunk,) in rows), dtype=np.int64))
