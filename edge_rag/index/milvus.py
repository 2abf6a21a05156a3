"""The indexes kept in Milvus: followed change by change, and compared with SQLite wherever a change may be missing.

A Milvus collection is named after the data directory and the collection's number, so that boxes can share a server.
Beside them lies one with a row a collection that names the generation of SQLite which its vectors are at. It is written
after every change; where it is another one than SQLite's, on opening or after a call that failed, the rows' digests are
compared with the stored vectors and what differs is written again. Until that is done the collection cannot be
searched, since what is found might be deleted already.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from pymilvus import DataType

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse, IndexKind
from edge_rag.errors import StorageError
from edge_rag.index.background_builds import BackgroundBuilds
from edge_rag.index.ivf_build import Checkpoint
from edge_rag.index.milvus_index import STRONG, Milvus, MilvusIndex, digest
from edge_rag.storage.records import Change, Collection
from edge_rag.storage.vectors import StoredVectors

_log = structlog.get_logger(__name__)
_LONGEST_STATE: Final = 1024


@dataclass(slots=True)
class _Held:
    index: MilvusIndex
    in_step: bool = False
    problem: str = ""
    changing: threading.Lock = field(default_factory=threading.Lock)


class MilvusIndexes:
    """Implements ``VectorHome`` by Milvus.

    Args:
        milvus: The connection.
        stored: The vectors in SQLite.
        embedder: Name of the model whose vectors are stored.
        dimension: Length of a vector.
    """

    def __init__(self, milvus: Milvus, stored: StoredVectors, embedder: str, dimension: int) -> None:
        self._milvus = milvus
        self._stored = stored
        self._embedder = embedder
        self._dimension = dimension
        self._prefix = f"edge_rag_{stored.directory()}_"
        self._states = f"{self._prefix}states"
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self.updates = BackgroundBuilds(self._update, self._is_behind)

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Takes up the collections that are here; one that cannot be reached is tried again when it is asked for."""
        for collection in collections:
            self._held[collection.number] = _Held(self._index(collection.number))
        if not collections:
            return  # no server need be there for nothing
        try:
            states = self._read_states()
            self._remove_others()
        except StorageError as error:
            _log.error("collections in Milvus cannot be searched", error=str(error))
            for held in self._held.values():
                held.problem = str(error)
            return
        for collection in collections:
            held = self._held[collection.number]
            held.in_step = states.get(collection.number) == self._state(collection)
            if not held.in_step:
                self.updates.request(collection.number)

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index, as ``VectorIndex.search`` says.

        Raises:
            StorageError: Milvus fails, or what it has is not yet what SQLite has.
        """
        with self._lock:
            held = self._held.get(collection)
        if held is None:
            return [() for _ in questions]
        if not held.in_step:
            self.updates.request(collection)
            raise StorageError(held.problem or "the vectors in Milvus are being brought up to date; try again shortly")
        return held.index.search(questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Follows a committed change; where Milvus fails, the collection is brought up to date later."""
        number = change.collection.number
        if change.dropped:
            self.drop(number)
            return
        with self._lock:
            held = self._held[number]
        with held.changing:
            if held.in_step:
                try:
                    held.index.change(change.removed, change.added, vectors)
                    self._write_state(change.collection)
                except StorageError as error:
                    self._fall_behind(number, held, error)
        if not held.in_step:
            self.updates.request(number)

    def prepare(self, collection: Collection) -> None:
        """Fills the Milvus collection with what SQLite has.

        Raises:
            StorageError: Milvus fails.
        """
        self._agree(collection.number, self._index(collection.number), lambda done: None)

    def admit(self, collection: Collection) -> None:
        """Takes a collection in, as it is in SQLite now; nobody may change it meanwhile.

        Raises:
            StorageError: Milvus fails.
        """
        index = self._index(collection.number)
        self._agree(collection.number, index, lambda done: None)
        self._write_state(collection)
        with self._lock:
            self._held[collection.number] = _Held(index, in_step=True)

    def drop(self, collection: int) -> None:
        """Removes a collection from Milvus; what cannot be removed now is removed on a later opening."""
        with self._lock:
            self._held.pop(collection, None)
        try:
            self._index(collection).drop()
            with self._milvus.calling() as client:
                if client.has_collection(self._states, timeout=self._milvus.timeout_s):
                    client.delete(self._states, ids=[collection], timeout=self._milvus.timeout_s)
        except StorageError as error:
            _log.warning("a collection could not be removed from Milvus yet", collection=collection, error=str(error))

    def describe(self, collection: Collection) -> IndexInUse:
        """Says how a collection is searched."""
        with self._lock:
            held = self._held.get(collection.number)
        vectors = None
        if held is not None:
            try:
                vectors = len(held.index)
            except StorageError as error:
                _log.warning("Milvus does not say what it has", collection=collection.name, error=str(error))
        pending = held is not None and not held.in_step
        return IndexInUse(collection.name, IndexKind.MILVUS, vectors, pending=pending)

    def close(self) -> None:
        """Stops bringing collections up to date and lets the connection go; idempotent."""
        self.updates.close()
        self._milvus.close()

    def _index(self, collection: int) -> MilvusIndex:
        return MilvusIndex(self._milvus, f"{self._prefix}{collection}", self._dimension)

    def _state(self, collection: Collection) -> str:
        return f"{collection.generation} {self._embedder}"[:_LONGEST_STATE]

    def _fall_behind(self, number: int, held: _Held, error: StorageError) -> None:
        held.in_step, held.problem = False, str(error)
        _log.error("Milvus did not take a change; it is brought up to date later", collection=number, error=str(error))

    def _is_behind(self, number: int) -> bool:
        with self._lock:
            held = self._held.get(number)
        return held is not None and not held.in_step

    def _update(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            held = self._held.get(number)
        try:
            while held is not None and not held.in_step:
                before = self._stored.collection(number)
                if before is None:
                    return
                self._agree(number, held.index, checkpoint)
                with held.changing:
                    # Whatever was committed since is not in what was compared, unless nothing was.
                    if self._stored.collection(number) == before:
                        self._write_state(before)
                        held.in_step, held.problem = True, ""
        except StorageError as error:
            if held is not None:
                held.problem = str(error)
            _log.error("Milvus could not be brought up to date", collection=number, error=str(error))

    def _agree(self, number: int, index: MilvusIndex, checkpoint: Checkpoint) -> None:
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
        with self._milvus.calling() as client:
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
        with self._milvus.calling() as client:
            if not client.has_collection(self._states, timeout=timeout_s):
                schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
                schema.add_field("collection", DataType.INT64, is_primary=True)
                schema.add_field("state", DataType.VARCHAR, max_length=_LONGEST_STATE * 4)
                schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)  # Milvus has no collection without vectors
                index = client.prepare_index_params()
                index.add_index("nothing", index_type="AUTOINDEX", metric_type="IP")
                client.create_collection(
                    self._states, schema=schema, index_params=index, consistency_level=STRONG, timeout=timeout_s
                )
            row = {"collection": collection.number, "state": self._state(collection), "nothing": [0.0, 1.0]}
            client.upsert(self._states, data=[row], timeout=timeout_s)

    def _remove_others(self) -> None:
        kept = {f"{self._prefix}{number}" for number in self._held} | {self._states}
        with self._milvus.calling() as client:
            for name in client.list_collections(timeout=self._milvus.timeout_s):
                if name.startswith(self._prefix) and name not in kept:
                    client.drop_collection(name, timeout=self._milvus.timeout_s)
