"""Several parser processes, each used by one document at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edge_rag.ingest.parsing.sandbox.process import ParserProcess


class ParserPool:
    """Parsers that documents share. May be used from any thread.

    Args:
        make: Makes a parser, whose process starts with its first document.
    """

    def __init__(self, make: Callable[[], ParserProcess], size: int) -> None:
        self._make = make
        self._size = size
        self._changed = threading.Condition()
        self._free: list[ParserProcess] = []
        self._used: set[ParserProcess] = set()

    @contextmanager
    def acquire(self, collection: str) -> Iterator[ParserProcess]:
        """Holds a parser for the block; waits while all are in use. One that was killed in it is not used again."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._used) < self._size)
            same = [parser for parser in self._free if parser.collection == collection]
            if same:
                parser = same[-1]
                self._free.remove(parser)
            elif len(self._free) + len(self._used) >= self._size:
                parser = self._free.pop(0)
            else:
                parser = self._make()
            self._used.add(parser)
        try:
            yield parser
        finally:
            if parser.killed:
                parser.close()
            with self._changed:
                self._used.discard(parser)
                if not parser.killed:
                    self._free.append(parser)
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            parsers = (*self._free, *self._used)
        for parser in parsers:
            parser.close()
