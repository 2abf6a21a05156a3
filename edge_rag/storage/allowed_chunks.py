"""Which chunks a filter allows, for the dense search; the lexical one has the filter in its own statement."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from edge_rag.storage.database import Database
from edge_rag.storage.filter_sql import Condition
from edge_rag.storage.records import Collection

_Key = tuple[int, str, Condition]


class AllowedChunks:
    """Reads the chunks that a condition holds for, and keeps the latest answers. May be used from any thread.

    A collection has another generation after every change, so an answer that is kept is never out of date.

    Args:
        database: Has the chunks and documents.
        capacity_bytes: Most memory for answers that are kept; 0 keeps none.
    """

    def __init__(self, database: Database, capacity_bytes: int = 32 << 20) -> None:
        self._database = database
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, NDArray[np.int64]] = OrderedDict()
        self._bytes = 0

    def read(self, collection: Collection, condition: Condition) -> NDArray[np.int64]:
        """Returns the ids of the chunks, int64, ascending.

        Args:
            collection: As it was stored when the search began.
            condition: Of a WHERE clause over chunks ``k`` and documents ``d``.

        Raises:
            StorageError: The database failed.
        """
        key = (collection.number, collection.generation, condition)
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        found = self._read(collection.number, condition)
        with self._lock:
            if key not in self._kept and found.nbytes <= self._capacity_bytes:
                self._kept[key] = found
                self._bytes += found.nbytes
                while self._bytes > self._capacity_bytes:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return found

    def _read(self, collection: int, condition: Condition) -> NDArray[np.int64]:
        with self._database.snapshot() as connection:
            rows = connection.execute(
                "SELECT k.chunk FROM documents d JOIN chunks k ON k.document = d.document "
                f"WHERE d.collection = ? AND ({condition.sql})",
                (collection, *condition.parameters),
            )
            return np.sort(np.fromiter((chunk for (chunk,) in rows), dtype=np.int64))
