"""Documents on their way to the server, piece by piece."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from edge_rag.api.v1 import documents_pb2
from edge_rag.client.metadata_messages import write_metadata
from edge_rag.client.requests import sendable

PIECE_BYTES: Final = 256 * 1024


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

    @classmethod
    def of_file(cls, path: Path, name: str | None = None) -> OutgoingDocument:
        """Returns the document in a file, under the file's name unless another is given."""

        def open_file() -> BinaryIO:
            return path.open("rb")

        return cls(path.name if name is None else name, open_file)


def upload(documents: Iterable[OutgoingDocument], collection: str) -> Iterator[documents_pb2.IngestRequest]:
    """Yields the requests that carry documents.

    The size is announced first, so that a call that breaks off can never leave half a document. A file that grows
    meanwhile is taken as it was.

    Args:
        documents: What to hand over, each opened when its turn comes and closed after it.
        collection: Where they go.

    Raises:
        ClientError: INVALID_ARGUMENT, a name or metadata could not be sent.
        OSError: A document could not be opened, or not be read to the end that was announced.
    """
    for document in documents:
        header = documents_pb2.IngestRequest.Header(
            collection=collection,
            name=sendable("name", document.name),
            media_type=document.media_type,
            metadata=write_metadata(document.metadata),
        )
        with closing(document.open_content()) as content:
            left = header.size_bytes = content.seek(0, os.SEEK_END)
            content.seek(0)
            yield documents_pb2.IngestRequest(header=header)
            while left:
                piece = content.read(min(left, PIECE_BYTES))
                if not piece:
                    raise OSError(errno.EIO, f"became shorter while it was read, by {left:,} bytes")
                left -= len(piece)
                yield documents_pb2.IngestRequest(content=piece)
