"""The indexes kept on this box: a cache of the vectors in SQLite, searched in memory and in mapped files.

Each collection has an index of its own rather than a share of one with an id filter: a question then costs what its own
collection costs, cannot be answered from another one, and a collection that is dropped takes its index with it.

A small collection is searched exactly. Its file is used only if its manifest names the generation that the collection
has in SQLite; any other is ignored and the index is rebuilt from the stored vectors, within a second. So nothing
depends on saving: files are written at close, and on the way whenever an index has grown or changed by a quarter.

A large one has a segment, a file that never changes. SQLite knows it by name; the name is recorded once the file is
synced, and only then is the file before it removed, so that there is always a whole one. What was added and removed
since is not written down: on opening it is the difference between the segment's ids and those in SQLite, whatever
happened before. Where the segment is missing or damaged it is built before the collection is opened, which takes a
minute or two for a million chunks: until then any answer would be a worse one than the same question gets later, with
nothing to tell the two apart.

One thread that builds indexes anew while the others search them.
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
from edge_rag.index.layered import LayeredIndex
from edge_rag.storage.statements import Change, Collection
from edge_rag.storage.vectors import StoredVectors

_log = structlog.get_logger(__name__)
_NICENESS = 10
# Its own annotations are those of C++.
_faiss: Any = faiss


class BuildGivenUp(Exception):
    """A build was stopped because the data directory is being closed."""


class BackgroundBuilds:
    """Builds one collection's index at a time, on one processor and behind everything else that wants to run.

    Args:
        build: Builds the index of a collection; must call the checkpoint often, which raises to stop it.
        is_due: Whether the index of a collection is to be built, as it is now.
    """

    def __init__(self, build: Callable[[int, Checkpoint], None], is_due: Callable[[int], bool]) -> None:
        self._build = build
        self._is_due = is_due
        self._changed = threading.Condition()
        self._wanted: dict[int, bool] = {}  # whether it is to be built even if it is not due any more
        self._building: int | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def request(self, collection: int) -> None:
        """Has a collection's index built, once, however often that is asked for before it begins.

        Where it is being built, that is looked at again afterwards: what asked may have come too late for that build.
        """
        with self._changed:
            if self._closing or collection in self._wanted:
                return
            self._wanted[collection] = collection != self._building
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="index-builder")
                self._thread.start()
            self._changed.notify_all()

    def pending(self, collection: int) -> bool:
        """Returns whether a collection's index is being built or about to be."""
        with self._changed:
            return collection == self._building or collection in self._wanted

    def wait(self) -> None:
        """Returns when nothing is being built or about to be."""
        with self._changed:
            self._changed.wait_for(lambda: self._building is None and not self._wanted)

    def close(self) -> None:
        """Stops what is being built at its next checkpoint; idempotent."""
        with self._changed:
            self._closing = True
            self._wanted.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        _give_way()
        while True:
            with self._changed:
                self._building = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closing or self._wanted)
                if self._closing:
                    return
                collection = self._building = next(iter(self._wanted))
                sure = self._wanted.pop(collection)
            try:
                if sure or self._is_due(collection):
                    self._build(collection, self._checkpoint)
            except BuildGivenUp:
                _log.info("building an index was given up because the daemon stops", collection=collection)

    def _checkpoint(self, done: float) -> None:
        with self._changed:
            if self._closing:
                raise BuildGivenUp(f"stopped at {done:.0%}")


def _give_way() -> None:
    # Both hold for this thread only: on Linux a niceness is a thread's, and OpenMP's number of threads the caller's.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    _faiss.omp_set_num_threads(1)


_CHANGES_WORTH_SAVING = 4096
_CHANGES_WORTH_BUILDING = 4096
_LOGGED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """When a collection gets a segment.

    Attributes:
        exact_vectors: Most vectors that are searched exactly, at least 1: in a collection without a segment, and
            beside one. A collection that has shrunk to half of it is searched exactly again.
        recall: How good the search of a segment has to be.
    """

    exact_vectors: int = 50_000
    recall: RecallTarget = field(default_factory=RecallTarget)


@dataclass(slots=True)
class _Held:
    index: LayeredIndex
    generation: str
    unsaved: int
    segment: str = ""
    build_at: int = 0
    """Drift below which no build is tried again after one that failed."""


class LocalIndexes:
    """Implements ``IndexBackend`` by FAISS."""

    def __init__(
        self, folder: Path, embedder: str, dimension: int, stored: StoredVectors, limits: IndexLimits | None = None
    ) -> None:
        """Starts without indexes; ``load`` brings them.

        Args:
            folder: Where index files are; made if it does not exist.
            embedder: Name of the model whose vectors are stored.
            dimension: Length of a vector.
            stored: The vectors in SQLite.
            limits: When a collection gets a segment; the defaults if None.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._embedder = embedder
        self._dimension = dimension
        self._stored = stored
        self._limits = limits or IndexLimits()
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self.builds = BackgroundBuilds(self._build_beside, self._is_due)

    def load(self, collections: tuple[Collection, ...]) -> None:
        """Takes the index of each collection from its file, or rebuilds it where the file is not to be trusted.

        Args:
            collections: All collections whose vectors are here; files of others are removed.

        Raises:
            StorageError: The stored vectors could not be read, or a segment that is needed could not be written.
        """
        known: set[str] = set()
        counts = self._stored.counts()
        for collection in collections:
            number = collection.number
            held = self._opened(collection, counts.get(number, 0))
            self._held[number] = held
            for file in (IndexFile(self._folder, number), IndexFile(self._folder, number, held.segment)):
                known |= {file.content.name, file.manifest.name}
        for path in self._folder.iterdir():
            if path.name not in known:
                path.unlink()
        for collection in collections:
            self._consider_building(collection.number)

    def search(
        self, collection: int, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        """Searches a collection's index, as ``VectorIndex.search`` says."""
        with self._lock:
            held = self._held.get(collection)
        return [() for _ in questions] if held is None else held.index.search(questions, limit, within)

    def apply(self, change: Change, vectors: NDArray[np.float32]) -> None:
        """Brings an index to the state after a committed change; changes come in the order of their commits.

        Args:
            change: What was committed.
            vectors: Vectors of ``change.added``, float32 [added, dimension].
        """
        number = change.collection.number
        if change.dropped:
            self.drop(number)
            return
        with self._lock:
            held = self._held.setdefault(number, _Held(LayeredIndex(ExactIndex(self._dimension)), "", 0))
        held.index.change(change.removed, change.added, vectors)
        held.generation = change.collection.generation
        held.unsaved += len(change.removed) + len(change.added)
        if held.unsaved >= max(_CHANGES_WORTH_SAVING, len(held.index) // 4):
            self._save(number, held)
        self._consider_building(number)

    def prepare(self, collection: Collection) -> None:
        """Builds the segment that a collection which comes here will need, while it may still change.

        Raises:
            StorageError: The stored vectors could not be read, or the segment could not be written.
        """
        if self._stored.counts().get(collection.number, 0) > self._limits.exact_vectors:
            self._built_first(collection)

    def admit(self, collection: Collection) -> None:
        """Takes a collection in, as it is in SQLite now; nobody may change it meanwhile.

        Raises:
            StorageError: As in ``prepare``.
        """
        held = self._opened(collection, self._stored.counts().get(collection.number, 0))
        with self._lock:
            self._held[collection.number] = held

    def drop(self, collection: int) -> None:
        """Lets go of a collection's index and removes its files."""
        with self._lock:
            self._held.pop(collection, None)
        self._stored.record_segment(collection, None)
        self._remove_files(collection)

    def describe(self, collection: Collection) -> IndexInUse:
        """Says how a collection is searched."""
        with self._lock:
            held = self._held.get(collection.number)
        pending = self.builds.pending(collection.number)
        segment = None if held is None else held.index.segment
        if held is None or segment is None:
            return IndexInUse(collection.name, IndexKind.EXACT, 0 if held is None else len(held.index), pending=pending)
        report = segment.report
        return IndexInUse(
            collection.name,
            IndexKind.SEGMENT,
            len(held.index),
            unindexed=len(held.index.fresh),
            size_bytes=segment.size_bytes,
            recall=report.recall,
            built_at=datetime.fromtimestamp(report.built_at, UTC),
            build_s=report.build_s,
            pending=pending,
        )

    def close(self) -> None:
        """Stops building and writes what has changed since it was last written; a failure is only logged."""
        self.builds.close()
        with self._lock:
            unsaved = [(number, held) for number, held in self._held.items() if held.unsaved]
        for number, held in unsaved:
            self._save(number, held)

    def _save(self, number: int, held: _Held) -> None:
        if held.index.segment is not None:
            held.unsaved = 0
            return
        manifest = IndexManifest(self._embedder, self._dimension, held.generation, len(held.index))
        try:
            IndexFile(self._folder, number).write(held.index.fresh.serialize(), manifest)
        except OSError as error:
            _log.warning("an index file could not be written; it will be rebuilt", collection=number, error=str(error))
            return
        held.unsaved = 0

    def _opened(self, collection: Collection, chunks: int) -> _Held:
        segment = self._stored.segment(collection.number)
        if segment is not None:
            held = self._from_segment(collection, segment)
            if held is not None:
                return held
            _log.warning("a segment is missing or damaged and is built anew", collection=collection.name)
        if chunks > self._limits.exact_vectors:
            return self._built_first(collection)
        return self._from_file(collection, chunks) or self._rebuilt(collection)

    def _from_file(self, collection: Collection, chunks: int) -> _Held | None:
        expected = IndexManifest(self._embedder, self._dimension, collection.generation, chunks)
        content = IndexFile(self._folder, collection.number).read(expected)
        index = None if content is None else ExactIndex.deserialize(content, self._dimension)
        if index is None or len(index) != chunks:
            return None
        return _Held(LayeredIndex(index), collection.generation, 0)

    def _from_segment(self, collection: Collection, name: str) -> _Held | None:
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
        return _Held(index, collection.generation, 0, segment=name)

    def _rebuilt(self, collection: Collection) -> _Held:
        generation, ids, vectors = self._stored.read(collection.number, self._dimension)
        _log.info("index rebuilt from the stored vectors", collection=collection.name, chunks=len(ids))
        return _Held(LayeredIndex(ExactIndex.of(ids, vectors)), generation, max(1, len(ids)))

    def _built_first(self, collection: Collection) -> _Held:
        logged = 0.0

        def log_progress(done: float) -> None:
            nonlocal logged
            if done >= logged + _LOGGED_SHARE:
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
        return _Held(LayeredIndex(ExactIndex(self._dimension), segment), collection.generation, 0, segment=name)

    def _consider_building(self, number: int) -> None:
        if self._is_due(number):
            self.builds.request(number)

    def _is_due(self, number: int) -> bool:
        with self._lock:
            held = self._held.get(number)
        if held is None:
            return False
        segment, drift = held.index.segment, held.index.drift
        most = self._limits.exact_vectors
        if segment is None:
            wanted = drift > most
        else:
            wanted = drift > min(most, max(_CHANGES_WORTH_BUILDING, len(segment) // 8)) or len(held.index) <= most // 2
        return wanted and drift >= held.build_at

    def _build_beside(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            held = self._held.get(number)
        if held is None:
            return
        try:
            if len(held.index) <= self._limits.exact_vectors // 2:
                self._go_without_segment(number, held)
            else:
                self._renew_segment(number, held, checkpoint)
        except (OSError, StorageError) as error:
            held.build_at = held.index.drift + _CHANGES_WORTH_BUILDING
            _log.error("an index could not be built; the one there is stays", collection=number, error=str(error))

    def _renew_segment(self, number: int, held: _Held, checkpoint: Checkpoint) -> None:
        name, segment = self._new_segment(number, checkpoint)
        try:
            held.index.rebase(segment, ExactIndex(self._dimension))
            there = self._stored.record_segment(number, name)
        except BaseException:
            IndexFile(self._folder, number, name).delete()
            raise
        if not there:
            self._remove_files(number)
            return
        IndexFile(self._folder, number, held.segment).delete()
        held.segment, held.build_at = name, 0

    def _go_without_segment(self, number: int, held: _Held) -> None:
        _, ids, vectors = self._stored.read(number, self._dimension)
        held.index.rebase(None, ExactIndex.of(ids, vectors))
        held.unsaved = max(1, len(ids))
        self._stored.record_segment(number, None)
        IndexFile(self._folder, number, held.segment).delete()
        held.segment, held.build_at = "", 0

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
