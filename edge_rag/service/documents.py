"""Documents: uploads, direct ingest, reading and deleting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from edge_rag.core.documents.document import DocumentInfo, IngestOutcome, IngestStatus, Upload
from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest
from edge_rag.service.call import Call, Operation

INGEST: Final = Operation("Ingest", Role.WRITER, long=True)
GET_DOCUMENT: Final = Operation("Get", Role.READER)
LIST_DOCUMENTS: Final = Operation("List", Role.READER)
DELETE_DOCUMENT: Final = Operation("Delete", Role.WRITER)


@dataclass(frozen=True, slots=True)
class UploadHeader:
    """The beginning of a document in a stream of uploads.

    Attributes:
        collection: Where it is stored.
        name: Its name.
        media_type: Its media type; empty if unknown.
        metadata: Its metadata.
        size_bytes: Its announced size; None if unknown.
    """

    collection: str
    name: str
    media_type: str
    metadata: Mapping[str, MetadataValue]
    size_bytes: int | None = None


class UploadEnd:
    """The end of a document in a stream of uploads, before the next header is parsed."""


UploadPart: TypeAlias = UploadHeader | bytes | UploadEnd
"""A part of a stream of uploads: for each document a header, its content in pieces, and its end."""

Uploads: TypeAlias = AsyncIterator[Upload | IngestOutcome]
"""Complete documents, and outcomes of documents that were rejected while they arrived."""


async def assemble(call: Call, parts: AsyncIterator[UploadPart]) -> AsyncGenerator[Upload | IngestOutcome, None]:
    """Assembles documents from their parts; holds at most one in memory.

    Yields:
        Each document when it is complete, or a rejection as soon as the document exceeds the size limit or ends with
        another size than announced.

    Raises:
        CollectionNotFound: A collection does not exist for the caller.
        InvalidRequest: Content came before a header.
    """
    most = call.backend.document_bytes
    header: UploadHeader | None = None
    content = bytearray()
    rejected = False
    async for part in parts:
        if isinstance(part, UploadHeader):
            call.check_collection(part.collection)
            header, content = part, bytearray()
            rejected = (part.size_bytes or 0) > most
            if rejected:
                yield _too_large(header, f"{part.size_bytes:,} bytes", most)
        elif header is None:
            raise InvalidRequest("header", "must come before the content of a document")
        elif rejected:
            continue
        elif isinstance(part, UploadEnd):
            yield _complete(header, content)
        elif len(content) + len(part) <= most:
            content += part
        else:
            yield _too_large(header, "more", most)
            rejected, content = True, bytearray()


async def ingest(call: Call, uploads: Uploads) -> list[IngestOutcome]:
    """Stores documents one after the other; returns their outcomes in order.

    Raises:
        Overloaded: Too many documents wait.
        StorageError: The data directory failed; documents before that are stored.
        NotReady: The daemon is shutting down.
    """
    return [
        await call.backend.ingest.ingest(upload, call.trace) if isinstance(upload, Upload) else upload
        async for upload in uploads
    ]


async def get(call: Call, collection: str, document: str) -> tuple[DocumentInfo, str]:
    """Returns a document's record and text, by id or by name.

    Raises:
        CollectionNotFound, DocumentNotFound: It does not exist.
    """
    call.check_collection(collection)
    return await asyncio.to_thread(call.backend.library.get, collection, document)


async def list_page(
    call: Call, collection: str, after: DocumentId | None, size: int
) -> tuple[tuple[DocumentInfo, ...], DocumentId | None]:
    """Returns up to ``size`` records in order of id, and the id after which the next page begins; None at the end.

    Raises:
        CollectionNotFound: It does not exist.
    """
    call.check_collection(collection)
    found = await asyncio.to_thread(call.backend.library.list, collection, after, size + 1)
    return found[:size], found[size - 1].document_id if len(found) > size else None


async def delete(call: Call, collection: str, document: str) -> DocumentInfo:
    """Removes a document, by id or by name; durable on return.

    Raises:
        CollectionNotFound, DocumentNotFound: It does not exist.
    """
    call.check_collection(collection)
    return await asyncio.to_thread(call.backend.library.delete, collection, document)


def _complete(header: UploadHeader, content: bytearray) -> Upload | IngestOutcome:
    if header.size_bytes is not None and len(content) != header.size_bytes:
        reason = f"{len(content):,} bytes came, {header.size_bytes:,} were announced; send it again"
        return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
    return Upload(header.collection, header.name, header.media_type, bytes(content), header.metadata)


def _too_large(header: UploadHeader, size: str, most: int) -> IngestOutcome:
    reason = f"has {size}, at most {most:,} bytes are allowed (ingest.document_mib)"
    return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
