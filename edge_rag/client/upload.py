"""A document on its way to the server, piece by piece."""

from __future__ import annotations

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

    gRPC iterates on a thread of its own. When the file cannot be read to its end, the call is cancelled before the
    stream could look complete, so that the server never takes half a document; ``error`` then says why.

    Args:
        header: Says what follows.
        content: The bytes; read to its end, not closed.
    """

    def __init__(self, header: documents_pb2.IngestRequest.Header, content: BinaryIO) -> None:
        self.error: OSError | None = None
        self._header = header
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
        while True:
            try:
                piece = self._content.read(PIECE_BYTES)
            except ValueError:  # the call is over and its owner has closed the file
                return
            except OSError as error:
                self.error = error
                self._bound.wait()
                if self._call is not None:
                    self._call.cancel()
                return
            if not piece:
                return
            yield documents_pb2.IngestRequest(content=piece)
