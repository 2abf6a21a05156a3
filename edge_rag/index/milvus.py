"""Vector indexes in Milvus, a server or milvus-lite: updated with each change, and compared with SQLite after failures.

A Milvus collection is named after the data directory and the collection's row id, so that boxes can share a server. One
more Milvus collection has a row per collection with the generation of SQLite that its vectors are at, written after
every change. If it differs from SQLite's generation, at start or after a failed call, the digests of the rows are
compared with the stored vectors, and the differences are written. Until then the collection cannot be searched, because
a result could be deleted already.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import numpy as np
import structlog
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient, MilvusException

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse, IndexKind
from edge_rag.errors import StorageError
from edge_rag.index.flat import EMPTY_RANKING, Ranking
from edge_rag.index.ivf_build import Checkpoint
from edge_rag.index.local import BackgroundBuilds
from edge_rag.storage.statements import Change, Collection
from edge_rag.storage.vectors import StoredVectors

STRONG: Final = "Strong"
"""Consistency level: every search sees all changes acknowledged before it."""

_BATCH_ROWS: Final = 1000
_BATCH_IDS: Final = 10_000


class Milvus:
    """A connection to Milvus; its failures become ``StorageError``.

    Args:
        token: ``user:password`` or an API key; empty for none.
        timeout_s: Timeout of a call, seconds.
    """

    def __init__(self, uri: str, token: str, timeout_s: float) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self._token = token
        self._client: MilvusClient | None = None

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yields the client; connects it first if necessary.

        Raises:
            StorageError: Milvus cannot be reached, is too slow, or refuses.
        """
        try:
            if self._client is None:
                self._client = MilvusClient(uri=self.uri, token=self._token, timeout=self.timeout_s)
            yield self._client
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError, ValueError) as error:
            raise StorageError(
                f"Milvus at {self.uri} failed ({_first_line(error)}); check that it runs and that retriever.milvus is "
                "configured correctly, or `edge-rag collections move NAME --to faiss`"
            ) from error

    def close(self) -> None:
        """Closes the connection; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class MilvusIndex:
    """Implements ``VectorIndex`` with a Milvus collection of one row per vector.

    Each row also has the first 8 bytes of the vector's SHA-256, so that rows can be compared with SQLite without
    reading vectors.
    """

    def __init__(self, milvus: Milvus, name: str, dimension: int) -> None:
        self._milvus = milvus
        self._name = name
        self._dimension = dimension

    def create(self) -> None:
        """Creates the Milvus collection if it does not exist."""
        with self._milvus.client() as client:
            if client.has_collection(self._name, timeout=self._milvus.timeout_s):
                return
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("chunk", DataType.INT64, is_primary=True)
            schema.add_field("digest", DataType.INT64)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._dimension)
            index = client.prepare_index_params()
            index.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
            client.create_collection(
                self._name,
                schema=schema,
                index_params=index,
                consistency_level=STRONG,
                timeout=self._milvus.timeout_s,
            )

    def drop(self) -> None:
        with self._milvus.client() as client:
            if client.has_collection(self._name, timeout=self._milvus.timeout_s):
                client.drop_collection(self._name, timeout=self._milvus.timeout_s)

    def __len__(self) -> int:
        with self._milvus.client() as client:
            rows = client.query(
                self._name,
                filter="",
                output_fields=["count(*)"],
                consistency_level=STRONG,
                timeout=self._milvus.timeout_s,
            )
        return int(rows[0]["count(*)"])

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        """Removes and adds vectors, as ``VectorIndex.change`` specifies; a concurrent search may see a part of it."""
        timeout_s = self._milvus.timeout_s
        with self._milvus.client() as client:
            for first in range(0, len(removed), _BATCH_ROWS):
                some = [int(number) for number in removed[first : first + _BATCH_ROWS]]
                client.delete(self._name, ids=some, timeout=timeout_s)
            for first in range(0, len(added), _BATCH_ROWS):
                rows = [
                    {"chunk": int(number), "digest": digest(vector), "vector": vector}
                    for number, vector in zip(
                        added[first : first + _BATCH_ROWS],
                        np.asarray(vectors[first : first + _BATCH_ROWS], dtype=np.float32),
                        strict=True,
                    )
                ]
                client.upsert(self._name, data=rows, timeout=timeout_s)

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question vector, as ``VectorIndex.search`` specifies."""
        if not len(questions):
            return []
        if within is None:
            return self._ranked(questions, limit, "").best(limit)
        found = EMPTY_RANKING.repeated(len(questions))
        # A filter with a million ids exceeds the message limit. The best of all parts are the best overall.
        for first in range(0, len(within), _BATCH_IDS):
            named = ", ".join(map(str, within[first : first + _BATCH_IDS].tolist()))
            found = found.combined(self._ranked(questions, limit, f"chunk in [{named}]"))
        return found.best(limit)

    def digests(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the ids of all rows, int64 [n], ascending, and the digests of their vectors, int64 [n]."""
        parts = [np.empty((0, 2), dtype=np.int64)]
        with self._milvus.client() as client:
            rows = client.query_iterator(
                self._name,
                batch_size=_BATCH_ROWS,
                filter="",
                output_fields=["chunk", "digest"],
                consistency_level=STRONG,
                timeout=self._milvus.timeout_s,
            )
            try:
                while some := rows.next():
                    parts.append(np.array([(row["chunk"], row["digest"]) for row in some], dtype=np.int64))
            finally:
                rows.close()
        both = np.concatenate(parts)
        both = both[np.argsort(both[:, 0], kind="stable")]
        return both[:, 0].copy(), both[:, 1].copy()

    def _ranked(self, questions: NDArray[np.float32], limit: int, condition: str) -> Ranking:
        with self._milvus.client() as client:
            answers = client.search(
                self._name,
                data=list(np.ascontiguousarray(questions, dtype=np.float32)),
                limit=limit,
                filter=condition,
                output_fields=["chunk"],
                search_params={"metric_type": "IP"},
                consistency_level=STRONG,
                timeout=self._milvus.timeout_s,
            )
        longest = max(map(len, answers), default=0)
        scores = np.full((len(questions), longest), -np.inf, dtype=np.float32)
        ids = np.full((len(questions), longest), -1, dtype=np.int64)
        for row, answer in enumerate(answers):
            scores[row, : len(answer)] = [hit["distance"] for hit in answer]
            ids[row, : len(answer)] = [hit["chunk"] for hit in answer]
        return Ranking(scores, ids)


def digest(vector: NDArray[np.float32]) -> int:
    """Returns the first 8 bytes of a vector's SHA-256 as a signed integer."""
    return int.from_bytes(hashlib.sha256(vector.astype("<f4").tobytes()).digest()[:8], "little", signed=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_log = structlog.get_logger(__name__)
_LONGEST_STATE: Final = 1024


@dataclass(slots=True)
class _MilvusState:
    index: MilvusIndex
    in_step: bool = False
    problem: str = ""
    changing: threading.Lock = field(default_factory=threading.Lock)


class MilvusIndexes:
    """Implements ``IndexBackend`` with Milvus."""

    def __init__(self, milvus: Milvus, stored: StoredVectors, embedder: str, dimension: int) -> None:
        self._milvus = milvus
        self._stored = stored
        self._embedder = embedder
        self._dimension = dimension
        self._prefix = f"edge_rag_{stored.directory()}_"
        self._states = f"{self._prefix}states"
        self._lock = threading.Lock()
        self._indexes: dict[int, _MilvusState] = {}
        self.updates = BackgroundBuilds(self._update, self._is_behind)

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Loads the backend's collections; if Milvus cannot be reached, this is retried at the next search."""
        for collection in collections:
            self._indexes[collection.number] = _MilvusState(self._index(collection.number))
        if not collections:
            return  # without collections no server is needed
        try:
            states = self._read_states()
            self._remove_others()
        except StorageError as error:
            _log.error("collections in Milvus cannot be searched", error=str(error))
            for state in self._indexes.values():
                state.problem = str(error)
            return
        for collection in collections:
            state = self._indexes[collection.number]
            state.in_step = states.get(collection.number) == self._state(collection)
            if not state.in_step:
                self.updates.request(collection.number)

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index like ``VectorIndex.search``.

        Raises:
            StorageError: Milvus failed, or is not up to date with SQLite yet.
        """
        with self._lock:
            state = self._indexes.get(collection)
        if state is None:
            return [() for _ in questions]
        if not state.in_step:
            self.updates.request(collection)
            raise StorageError(state.problem or "the vectors in Milvus are being brought up to date; try again shortly")
        return state.index.search(questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Applies a committed change; if Milvus fails, the collection is brought up to date later."""
        number = change.collection.number
        if change.dropped:
            self.drop(number)
            return
        with self._lock:
            state = self._indexes[number]
        with state.changing:
            if state.in_step:
                try:
                    state.index.change(change.removed, change.added, vectors)
                    self._write_state(change.collection)
                except StorageError as error:
                    self._mark_behind(number, state, error)
        if not state.in_step:
            self.updates.request(number)

    def prepare(self, collection: Collection) -> None:
        self._synchronize(collection.number, self._index(collection.number), lambda done: None)

    def admit(self, collection: Collection) -> None:
        """Adds a collection as it is in SQLite now; it must not change during the call."""
        index = self._index(collection.number)
        self._synchronize(collection.number, index, lambda done: None)
        self._write_state(collection)
        with self._lock:
            self._indexes[collection.number] = _MilvusState(index, in_step=True)

    def drop(self, collection: int) -> None:
        """Removes a collection from Milvus; if that fails, it is removed at a later start."""
        with self._lock:
            self._indexes.pop(collection, None)
        try:
            self._index(collection).drop()
            with self._milvus.client() as client:
                if client.has_collection(self._states, timeout=self._milvus.timeout_s):
                    client.delete(self._states, ids=[collection], timeout=self._milvus.timeout_s)
        except StorageError as error:
            _log.warning("a collection could not be removed from Milvus yet", collection=collection, error=str(error))

    def describe(self, collection: Collection) -> IndexInUse:
        """Describes the index of a collection."""
        with self._lock:
            state = self._indexes.get(collection.number)
        vectors = None
        if state is not None:
            try:
                vectors = len(state.index)
            except StorageError as error:
                _log.warning(
                    "Milvus does not report the number of its vectors", collection=collection.name, error=str(error)
                )
        pending = state is not None and not state.in_step
        return IndexInUse(collection.name, IndexKind.MILVUS, vectors, pending=pending)

    def close(self) -> None:
        """Stops background updates and closes the connection; idempotent."""
        self.updates.close()
        self._milvus.close()

    def _index(self, collection: int) -> MilvusIndex:
        return MilvusIndex(self._milvus, f"{self._prefix}{collection}", self._dimension)

    def _state(self, collection: Collection) -> str:
        return f"{collection.generation} {self._embedder}"[:_LONGEST_STATE]

    def _mark_behind(self, number: int, state: _MilvusState, error: StorageError) -> None:
        state.in_step, state.problem = False, str(error)
        _log.error("Milvus failed to apply a change; it is updated later", collection=number, error=str(error))

    def _is_behind(self, number: int) -> bool:
        with self._lock:
            state = self._indexes.get(number)
        return state is not None and not state.in_step

    def _update(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            state = self._indexes.get(number)
        try:
            while state is not None and not state.in_step:
                before = self._stored.collection(number)
                if before is None:
                    return
                self._synchronize(number, state.index, checkpoint)
                with state.changing:
                    # Changes committed since are not in the comparison, unless there were none.
                    if self._stored.collection(number) == before:
                        self._write_state(before)
                        state.in_step, state.problem = True, ""
        except StorageError as error:
            if state is not None:
                state.problem = str(error)
            _log.error("Milvus could not be brought up to date", collection=number, error=str(error))

    def _synchronize(self, number: int, index: MilvusIndex, checkpoint: Checkpoint) -> None:
        index.create()
        ids, digests = index.digests()
        there = np.zeros(len(ids), dtype=np.bool_)
        written = 0
        for some, vectors in self._stored.of(number, self._dimension).blocks():
            places = np.minimum(np.searchsorted(ids, some), max(0, len(ids) - 1))
            known = ids[places] == some if len(ids) else np.zeros(len(some), dtype=np.bool_)
            wanted = np.fromiter((digest(vector) for vector in vectors), np.int64, len(vectors))
            right = known.copy()
            right[known] = digests[places[known]] == wanted[known]
            there[places[known]] = True
            index.change((), some[~right], vectors[~right])
            written += int(np.count_nonzero(~right))
            checkpoint(0.5)
        gone = [ChunkId(number) for number in ids[~there].tolist()]
        index.change(gone, (), np.empty((0, self._dimension), np.float32))
        _log.info("compared with Milvus", collection=number, written=written, removed=len(gone))

    def _read_states(self) -> dict[int, str]:
        timeout_s = self._milvus.timeout_s
        with self._milvus.client() as client:
            if not client.has_collection(self._states, timeout=timeout_s):
                return {}
            rows = client.query(
                self._states,
                filter="collection > 0",
                output_fields=["collection", "state"],
                consistency_level=STRONG,
                timeout=timeout_s,
            )
        return {int(row["collection"]): str(row["state"]) for row in rows}

    def _write_state(self, collection: Collection) -> None:
        timeout_s = self._milvus.timeout_s
        with self._milvus.client() as client:
            if not client.has_collection(self._states, timeout=timeout_s):
                schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
                schema.add_field("collection", DataType.INT64, is_primary=True)
                schema.add_field("state", DataType.VARCHAR, max_length=_LONGEST_STATE * 4)
                schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)  # Milvus requires a vector field
                index = client.prepare_index_params()
                index.add_index("nothing", index_type="AUTOINDEX", metric_type="IP")
                client.create_collection(
                    self._states, schema=schema, index_params=index, consistency_level=STRONG, timeout=timeout_s
                )
            row = {"collection": collection.number, "state": self._state(collection), "nothing": [0.0, 1.0]}
            client.upsert(self._states, data=[row], timeout=timeout_s)

    def _remove_others(self) -> None:
        kept = {f"{self._prefix}{number}" for number in self._indexes} | {self._states}
        with self._milvus.client() as client:
            for name in client.list_collections(timeout=self._milvus.timeout_s):
                if name.startswith(self._prefix) and name not in kept:
                    client.drop_collection(name, timeout=self._milvus.timeout_s)
