"""A document on its way to the server, piece by piece."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from edge_rag.api.v1 import documents_pb2

PIECE_BYTES = 256 * 1024


class Cancellable(Protocol):
    """A call that can be ended from here."""

    def cancel(self) -> object:
        """Ends the call."""
        ...


class Upload:
    """The messages of an ``Ingest`` call for one document.

    gRPC iterates on a thread of its own. The size is announced first, so that a call that breaks off can never leave
    half a document. A file that grows meanwhile is taken as it was; one that shrinks or fails ends the call, and
    ``error`` then says why.

    Args:
        header: Says what follows; the size is added to it.
        content: The bytes, seekable; read from its start, not closed.
    """

    def __init__(self, header: documents_pb2.IngestRequest.Header, content: BinaryIO) -> None:
        self.error: OSError | None = None
        self._size = content.seek(0, os.SEEK_END)
        content.seek(0)
        self._header = documents_pb2.IngestRequest.Header()
        self._header.CopyFrom(header)
        self._header.size_bytes = self._size
        self._content = content
        self._call: Cancellable | None = None
        self._bound = threading.Event()

    def bind(self, call: Cancellable) -> None:
        """Names the call that these messages belong to; must follow its start."""
        self._call = call
        self._bound.set()

    def __iter__(self) -> Iterator[documents_pb2.IngestRequest]:
        """Yields the messages."""
        yield documents_pb2.IngestRequest(header=self._header)
        left = self._size
        while left:
            try:
                piece = self._content.read(min(left, PIECE_BYTES))
                if not piece:
                    raise OSError(errno.EIO, f"became shorter while it was read, by {left:,} bytes")
            except ValueError:  # the call is over and its owner has closed the file
                return
            except OSError as error:
                self.error = error
                self._bound.wait()
                if self._call is not None:
                    self._call.cancel()
                return
            left -= len(piece)
            yield documents_pb2.IngestRequest(content=piece)
