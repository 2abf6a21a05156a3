"""Documents on their way to the server."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from edge_rag.api.v1 import documents_pb2
from edge_rag.client.errors import invalid_argument
from edge_rag.core.documents.metadata import validate_metadata
from edge_rag.wire.metadata import metadata_to_message
from edge_rag.wire.requests import sendable

PART_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutgoingDocument:
    """A document to upload.

    Attributes:
        name: Its name, unique within its collection.
        open_content: Opens its content; the file must be seekable.
        media_type: IANA media type; empty to let the server detect it.
        metadata: Its metadata, as for ``Client.ingest``.
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


def upload_requests(documents: Iterable[OutgoingDocument], collection: str) -> Iterator[documents_pb2.IngestRequest]:
    """Yields the requests that carry documents: for each, a header with its size, then its content in parts.

    By the announced size the server distinguishes a complete call from one that broke off. A file that grows meanwhile
    is sent as it was.

    Raises:
        OSError: A document cannot be opened, or cannot be read to the announced end.
    """
    for document in documents:
        with invalid_argument():
            header = documents_pb2.IngestRequest.Header(
                collection=collection,
                name=sendable("name", document.name),
                media_type=document.media_type,
                metadata=metadata_to_message(validate_metadata(document.metadata)),
            )
        with closing(document.open_content()) as content:
            left = header.size_bytes = content.seek(0, os.SEEK_END)
            content.seek(0)
            yield documents_pb2.IngestRequest(header=header)
            while left:
                part = content.read(min(left, PART_BYTES))
                if not part:
                    raise OSError(errno.EIO, f"became shorter while it was read, by {left:,} bytes")
                left -= len(part)
                yield documents_pb2.IngestRequest(content=part)
