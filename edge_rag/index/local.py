"""The local index backend: a cache of the vectors in SQLite, searched in memory and in mapped files.

Each collection has its own index instead of a share of one index with an id filter. The cost of a question then depends
on its own collection only, results cannot come from another one, and a dropped collection takes its index with it.

A small collection is searched exactly. Its file is used only if its manifest names the collection's current generation
in SQLite; otherwise the index is rebuilt from the stored vectors within a second. Nothing depends on saving: files are
written at close, and whenever an index has grown or changed by a quarter.

A large collection has a segment, a file that never changes. SQLite holds its name, recorded after the file is synced;
only then is the previous file removed, so a complete one always exists. Changes since the build are not written: at
start they are the difference between the ids of the segment and those in SQLite. A missing or damaged segment is built
before the collection is opened, which takes a minute or two for a million chunks. Until then results would be worse
than those of the same question later, and a client could not notice.

One background thread rebuilds indexes while the others search them.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import structlog
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.core.monitoring.status import IndexInUse, IndexKind
from edge_rag.errors import StorageError
from edge_rag.index.file import IndexFile, IndexManifest, SegmentManifest
from edge_rag.index.flat import ExactIndex, membership
from edge_rag.index.ivf_build import Checkpoint, RecallTarget, build_segment
from edge_rag.index.ivf_segment import Segment
from edge_rag.index.layered import LackingVectors, LayeredIndex
from edge_rag.storage.statements import Change, Collection
from edge_rag.storage.vectors import StoredVectors

_log = structlog.get_logger(__name__)
_NICENESS = 10
# FAISS annotates its C++ signatures; its Python wrappers accept more types.
_faiss: Any = faiss


class BuildStopped(Exception):
    """A build was stopped because the data directory is being closed."""


class BackgroundBuilds:
    """Builds one collection's index at a time, on one processor and at low priority.

    Args:
        build: Builds the index of a collection; calls the checkpoint often, which raises to stop the build.
        is_due: Whether the index of a collection needs to be built now.
    """

    def __init__(self, build: Callable[[int, Checkpoint], None], is_due: Callable[[int], bool]) -> None:
        self._build_index = build
        self._is_due = is_due
        self._changed = threading.Condition()
        self._requested: dict[int, bool] = {}  # whether to build even if it is not due any more
        self._building: int | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def request(self, collection: int) -> None:
        """Requests a build of a collection's index; requests before its start are merged into one.

        During a build of the same collection the need is checked again afterwards, because the change behind this
        request may have come too late for it.
        """
        with self._changed:
            if self._closing or collection in self._requested:
                return
            self._requested[collection] = collection != self._building
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="index-builder")
                self._thread.start()
            self._changed.notify_all()

    def pending(self, collection: int) -> bool:
        with self._changed:
            return collection == self._building or collection in self._requested

    def wait(self) -> None:
        """Waits until nothing is being built or queued."""
        with self._changed:
            self._changed.wait_for(lambda: self._building is None and not self._requested)

    def close(self) -> None:
        """Stops the current build at its next checkpoint; idempotent."""
        with self._changed:
            self._closing = True
            self._requested.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        _lower_priority()
        while True:
            with self._changed:
                self._building = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closing or self._requested)
                if self._closing:
                    return
                collection = self._building = next(iter(self._requested))
                unconditional = self._requested.pop(collection)
            try:
                if unconditional or self._is_due(collection):
                    self._build_index(collection, self._checkpoint)
            except BuildStopped:
                _log.info("an index build was stopped because the daemon stops", collection=collection)

    def _checkpoint(self, done: float) -> None:
        with self._changed:
            if self._closing:
                raise BuildStopped(f"stopped at {done:.0%}")


def _lower_priority() -> None:
    # Both apply to this thread only: on Linux a nice value is per thread, and OpenMP's thread count the caller's.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    _faiss.omp_set_num_threads(1)


_MIN_CHANGES_TO_SAVE = 4096
_MIN_CHANGES_TO_BUILD = 4096
_LOG_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """When a collection gets a segment.

    Attributes:
        exact_vectors: Most vectors searched exactly, at least 1: in a collection without a segment, and beside one. A
            collection that has shrunk to half of it is searched exactly again.
        recall: Recall that the search of a segment must reach.
    """

    exact_vectors: int = 50_000
    recall: RecallTarget = field(default_factory=RecallTarget)


@dataclass(slots=True)
class _LocalIndex:
    index: LayeredIndex
    generation: str
    unsaved: int
    segment: str = ""
    build_at: int = 0
    """Drift below which no build is tried again after a failed one."""


class LocalIndexes:
    """Implements ``IndexBackend`` with FAISS."""

    def __init__(
        self, folder: Path, embedder: str, dimension: int, stored: StoredVectors, limits: IndexLimits | None = None
    ) -> None:
        """Creates a backend without indexes; ``load`` adds them.

        Args:
            folder: Folder of the index files; created if it does not exist.
            limits: When a collection gets a segment; the defaults if None.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._embedder = embedder
        self._dimension = dimension
        self._stored = stored
        self._limits = limits or IndexLimits()
        self._lock = threading.Lock()
        self._indexes: dict[int, _LocalIndex] = {}
        self.builds = BackgroundBuilds(self._build, self._is_due)

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Loads the index of each collection from its file, or rebuilds it if the file is not valid."""
        known: set[str] = set()
        counts = self._stored.counts()
        for collection in collections:
            number = collection.number
            local = self._open(collection, counts.get(number, 0))
            self._indexes[number] = local
            for file in (IndexFile(self._folder, number), IndexFile(self._folder, number, local.segment)):
                known |= {file.content.name, file.manifest.name}
        for path in self._folder.iterdir():
            if path.name not in known:
                path.unlink()
        for collection in collections:
            self._request_if_due(collection.number)

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        with self._lock:
            local = self._indexes.get(collection)
        return [() for _ in questions] if local is None else local.index.search(questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Applies a committed change, as ``IndexBackend.apply`` specifies."""
        number = change.collection.number
        if change.dropped:
            self.drop(number)
            return
        with self._lock:
            local = self._indexes.setdefault(number, _LocalIndex(LayeredIndex(ExactIndex(self._dimension)), "", 0))
        local.index.change(change.removed, change.added, vectors)
        local.generation = change.collection.generation
        local.unsaved += len(change.removed) + len(change.added)
        if local.unsaved >= max(_MIN_CHANGES_TO_SAVE, len(local.index) // 4):
            self._save(number, local)
        self._request_if_due(number)

    def prepare(self, collection: Collection) -> None:
        if self._stored.counts().get(collection.number, 0) > self._limits.exact_vectors:
            self._build_now(collection)

    def admit(self, collection: Collection) -> None:
        """Adds a collection as it is in SQLite now; it must not change during the call."""
        local = self._open(collection, self._stored.counts().get(collection.number, 0))
        with self._lock:
            self._indexes[collection.number] = local

    def drop(self, collection: int) -> None:
        with self._lock:
            self._indexes.pop(collection, None)
        self._stored.record_segment(collection, None)
        self._remove_files(collection)

    def describe(self, collection: Collection) -> IndexInUse:
        """Describes the index of a collection."""
        with self._lock:
            local = self._indexes.get(collection.number)
        pending = self.builds.pending(collection.number)
        segment = None if local is None else local.index.segment
        if local is None or segment is None:
            vectors = 0 if local is None else len(local.index)
            return IndexInUse(collection.name, IndexKind.EXACT, vectors, pending=pending)
        report = segment.report
        return IndexInUse(
            collection.name,
            IndexKind.SEGMENT,
            len(local.index),
            unindexed=len(local.index.unindexed),
            size_bytes=segment.size_bytes,
            recall=report.recall,
            built_at=datetime.fromtimestamp(report.built_at, UTC),
            build_s=report.build_s,
            pending=pending,
        )

    def close(self) -> None:
        """Stops building and saves changed indexes; a failure is only logged."""
        self.builds.close()
        with self._lock:
            unsaved = [(number, local) for number, local in self._indexes.items() if local.unsaved]
        for number, local in unsaved:
            self._save(number, local)

    def _save(self, number: int, local: _LocalIndex) -> None:
        if local.index.segment is not None:
            local.unsaved = 0
            return
        manifest = IndexManifest(self._embedder, self._dimension, local.generation, len(local.index))
        try:
            IndexFile(self._folder, number).write(local.index.unindexed.serialize(), manifest)
        except OSError as error:
            _log.warning("an index file could not be written; it will be rebuilt", collection=number, error=str(error))
            return
        local.unsaved = 0

    def _open(self, collection: Collection, chunks: int) -> _LocalIndex:
        segment = self._stored.segment(collection.number)
        if segment is not None:
            local = self._from_segment(collection, segment)
            if local is not None:
                return local
            _log.warning("a segment is missing or damaged and is built again", collection=collection.name)
        if chunks > self._limits.exact_vectors:
            return self._build_now(collection)
        return self._from_file(collection, chunks) or self._rebuild(collection)

    def _from_file(self, collection: Collection, chunks: int) -> _LocalIndex | None:
        expected = IndexManifest(self._embedder, self._dimension, collection.generation, chunks)
        content = IndexFile(self._folder, collection.number).read(expected)
        index = None if content is None else ExactIndex.deserialize(content, self._dimension)
        if index is None or len(index) != chunks:
            return None
        return _LocalIndex(LayeredIndex(index), collection.generation, 0)

    def _from_segment(self, collection: Collection, name: str) -> _LocalIndex | None:
        file = IndexFile(self._folder, collection.number, name)
        if not file.verify(SegmentManifest(self._embedder, self._dimension, name)):
            return None
        segment = Segment.open(file.content, self._dimension)
        source = self._stored.of(collection.number, self._dimension)
        ids = source.ids()
        added, vectors = source.fetch_present(ids[~membership(ids, segment.ids)])
        index = LayeredIndex(ExactIndex.of(added, vectors), segment)
        removed = segment.ids[~membership(segment.ids, ids)]
        index.change([ChunkId(number) for number in removed.tolist()], (), np.empty((0, self._dimension), np.float32))
        return _LocalIndex(index, collection.generation, 0, segment=name)

    def _rebuild(self, collection: Collection) -> _LocalIndex:
        generation, ids, vectors = self._stored.read(collection.number, self._dimension)
        _log.info("index rebuilt from the stored vectors", collection=collection.name, chunks=len(ids))
        return _LocalIndex(LayeredIndex(ExactIndex.of(ids, vectors)), generation, max(1, len(ids)))

    def _build_now(self, collection: Collection) -> _LocalIndex:
        logged = 0.0

        def log_progress(done: float) -> None:
            nonlocal logged
            if done >= logged + _LOG_INTERVAL:
                logged = done
                _log.info("building an index from the stored vectors", collection=collection.name, done=f"{done:.0%}")

        try:
            name, segment = self._new_segment(collection.number, log_progress)
        except OSError as error:
            raise StorageError(
                f"the index of collection {collection.name!r} could not be written to {self._folder} "
                f"({error.strerror}); free some space, or make the folder writable, and start again"
            ) from error
        self._stored.record_segment(collection.number, name)
        return _LocalIndex(LayeredIndex(ExactIndex(self._dimension), segment), collection.generation, 0, segment=name)

    def _request_if_due(self, number: int) -> None:
        if self._is_due(number):
            self.builds.request(number)

    def _is_due(self, number: int) -> bool:
        with self._lock:
            local = self._indexes.get(number)
        if local is None:
            return False
        segment, drift = local.index.segment, local.index.drift
        most = self._limits.exact_vectors
        if segment is None:
            wanted = drift > most
        else:
            wanted = drift > min(most, max(_MIN_CHANGES_TO_BUILD, len(segment) // 8)) or len(local.index) <= most // 2
        return wanted and drift >= local.build_at

    def _build(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            local = self._indexes.get(number)
        if local is None:
            return
        try:
            if len(local.index) <= self._limits.exact_vectors // 2:
                self._drop_segment(number, local)
            else:
                self._renew_segment(number, local, checkpoint)
        except LackingVectors as error:
            # A document is deleted from SQLite before it is deleted from the index: a build in between is repeated.
            if membership(error.ids, self._stored.of(number, self._dimension).ids()).any():
                self._postpone(number, local, error)
            else:
                self.builds.request(number)
        except (OSError, StorageError) as error:
            self._postpone(number, local, error)

    def _postpone(self, number: int, local: _LocalIndex, error: Exception) -> None:
        local.build_at = local.index.drift + _MIN_CHANGES_TO_BUILD
        _log.error("an index could not be built; the current one stays", collection=number, error=str(error))

    def _renew_segment(self, number: int, local: _LocalIndex, checkpoint: Checkpoint) -> None:
        name, segment = self._new_segment(number, checkpoint)
        try:
            local.index.rebase(segment, ExactIndex(self._dimension))
            exists = self._stored.record_segment(number, name)
        except BaseException:
            IndexFile(self._folder, number, name).delete()
            raise
        if not exists:
            self._remove_files(number)
            return
        IndexFile(self._folder, number, local.segment).delete()
        local.segment, local.build_at = name, 0

    def _drop_segment(self, number: int, local: _LocalIndex) -> None:
        _, ids, vectors = self._stored.read(number, self._dimension)
        local.index.rebase(None, ExactIndex.of(ids, vectors))
        local.unsaved = max(1, len(ids))
        self._stored.record_segment(number, None)
        IndexFile(self._folder, number, local.segment).delete()
        local.segment, local.build_at = "", 0

    def _new_segment(self, number: int, checkpoint: Checkpoint) -> tuple[str, Segment]:
        name = secrets.token_hex(8)
        file = IndexFile(self._folder, number, name)
        manifest = SegmentManifest(self._embedder, self._dimension, name)
        source = self._stored.of(number, self._dimension)
        report = build_segment(source, file, manifest, self._limits.recall, checkpoint)
        segment = Segment.open(file.content, self._dimension)
        _log.info(
            "index built",
            collection=number,
            vectors=len(segment),
            recall=round(report.recall, 3),
            probes=report.probes,
            mib=segment.size_bytes >> 20,
            seconds=round(report.build_s, 1),
        )
        return name, segment

    def _remove_files(self, number: int) -> None:
        for path in self._folder.glob(f"{number}.*"):
            path.unlink(missing_ok=True)
