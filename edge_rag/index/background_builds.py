"""One thread that builds indexes anew while the others search them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import faiss
import structlog

from edge_rag.index.ivf_build import Checkpoint

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
