"""Nearest vectors of one collection, by a Milvus server or by milvus-lite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient, MilvusException

from edge_rag.core.ids import ChunkId
from edge_rag.errors import StorageError
from edge_rag.index.ranking import NOTHING, Ranking

STRONG: Final = "Strong"
"""Every search sees all that was acknowledged before it."""

_ROWS_AT_ONCE: Final = 1000
_IDS_AT_ONCE: Final = 10_000


class Milvus:
    """A connection to Milvus, whose failures are this project's.

    Args:
        uri: ``http(s)://HOST:PORT`` of a server, or the path of a milvus-lite file.
        token: ``user:password`` or an API key; empty for none.
        timeout_s: Longest that one call may take, seconds.
    """

    def __init__(self, uri: str, token: str, timeout_s: float) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self._token = token
        self._client: MilvusClient | None = None

    @contextmanager
    def calling(self) -> Iterator[Any]:
        """Lends the client, connecting it first if need be.

        Raises:
            StorageError: Milvus cannot be reached, is too slow, or refuses.
        """
        try:
            if self._client is None:
                self._client = MilvusClient(uri=self.uri, token=self._token, timeout=self.timeout_s)
            yield self._client
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError, ValueError) as error:
            raise StorageError(
                f"Milvus at {self.uri} failed ({_first_line(error)}); check that it runs and that retriever.milvus in "
                "the settings is right, or `edge-rag collections move NAME --to faiss`"
            ) from error

    def close(self) -> None:
        """Lets the connection go; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class MilvusIndex:
    """Implements ``VectorIndex`` by a Milvus collection of one row a vector.

    Beside the vector a row has the first 8 bytes of its SHA-256, so that what the rows hold can be compared with SQLite
    without fetching vectors.

    Args:
        milvus: The connection.
        name: Name of the Milvus collection.
        dimension: Length of a vector.
    """

    def __init__(self, milvus: Milvus, name: str, dimension: int) -> None:
        self._milvus = milvus
        self._name = name
        self._dimension = dimension

    def create(self) -> None:
        """Makes the Milvus collection if it is not there.

        Raises:
            StorageError: It cannot be made.
        """
        with self._milvus.calling() as client:
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
        """Removes the Milvus collection if it is there.

        Raises:
            StorageError: It cannot be removed.
        """
        with self._milvus.calling() as client:
            if client.has_collection(self._name, timeout=self._milvus.timeout_s):
                client.drop_collection(self._name, timeout=self._milvus.timeout_s)

    def __len__(self) -> int:
        with self._milvus.calling() as client:
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
        """Removes and adds, as ``VectorIndex.change`` says; a search meanwhile may see a part of it."""
        timeout_s = self._milvus.timeout_s
        with self._milvus.calling() as client:
            for first in range(0, len(removed), _ROWS_AT_ONCE):
                some = [int(number) for number in removed[first : first + _ROWS_AT_ONCE]]
                client.delete(self._name, ids=some, timeout=timeout_s)
            for first in range(0, len(added), _ROWS_AT_ONCE):
                rows = [
                    {"chunk": int(number), "digest": digest(vector), "vector": vector}
                    for number, vector in zip(
                        added[first : first + _ROWS_AT_ONCE],
                        np.asarray(vectors[first : first + _ROWS_AT_ONCE], dtype=np.float32),
                        strict=True,
                    )
                ]
                client.upsert(self._name, data=rows, timeout=timeout_s)

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Returns up to ``limit`` ids for each question vector, as ``VectorIndex.search`` says."""
        if not len(questions):
            return []
        if within is None:
            return self._ranked(questions, limit, "").best(limit)
        found = NOTHING.repeated(len(questions))
        # A filter that names a million ids is longer than a message may be; the best of all parts are the best.
        for first in range(0, len(within), _IDS_AT_ONCE):
            named = ", ".join(map(str, within[first : first + _IDS_AT_ONCE].tolist()))
            found = found.beside(self._ranked(questions, limit, f"chunk in [{named}]"))
        return found.best(limit)

    def digests(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the ids of all rows, int64 [n], ascending, and the digests of their vectors, int64 [n].

        Raises:
            StorageError: They could not be read.
        """
        parts = [np.empty((0, 2), dtype=np.int64)]
        with self._milvus.calling() as client:
            rows = client.query_iterator(
                self._name,
                batch_size=_ROWS_AT_ONCE,
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
        with self._milvus.calling() as client:
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
    """The first 8 bytes of a vector's SHA-256, as a signed integer."""
    return int.from_bytes(hashlib.sha256(vector.astype("<f4").tobytes()).digest()[:8], "little", signed=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
