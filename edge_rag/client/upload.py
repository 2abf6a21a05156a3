"""A document on its way to the server, piece by piece."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from edge_rag.api.v1 import documents_pb2
from edge_rag.client.failures import ClientError
from edge_rag.client.metadata_messages import write_metadata
from edge_rag.client.requests import sendable

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


@dataclass(frozen=True, slots=True)
class OutgoingDocument:
    """A document to hand over.

    Attributes:
        name: Its name, unique within its collection.
        open_content: Opens its bytes, seekable.
        media_type: What it is; empty to have it found out.
        metadata: What is known of it, as for ``Client.ingest``.
    """

    name: str
    open_content: Callable[[], BinaryIO]
    media_type: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)


class Uploads:
    """The messages of an ``Ingest`` or ``StartIngest`` call for several documents, each as by ``Upload``.

    Args:
        documents: What to hand over, each opened when its turn comes.
        collection: Where they go.
    """

    def __init__(self, documents: Iterable[OutgoingDocument], collection: str) -> None:
        self.error: OSError | ClientError | None = None
        self._documents = documents
        self._collection = collection
        self._call: Cancellable | None = None
        self._bound = threading.Event()

    def bind(self, call: Cancellable) -> None:
        """Names the call that these messages belong to; must follow its start."""
        self._call = call
        self._bound.set()

    def __iter__(self) -> Iterator[documents_pb2.IngestRequest]:
        """Yields the messages."""
        self._bound.wait()
        if self._call is None:
            return
        try:
            for document in self._documents:
                header = documents_pb2.IngestRequest.Header(
                    collection=self._collection,
                    name=sendable("name", document.name),
                    media_type=document.media_type,
                    metadata=write_metadata(document.metadata),
                )
                with closing(document.open_content()) as content:
                    upload = Upload(header, content)
                    upload.bind(self._call)
                    yield from upload
                if upload.error is not None:
                    self.error = upload.error
                    return
        except (OSError, ClientError) as error:
            self.error = error
            self._call.cancel()
