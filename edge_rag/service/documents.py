"""Documents: uploads, direct ingest, reading and deleting."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from edge_rag.core.documents.document import (
    ChunkPage,
    ChunkTerms,
    DocumentInfo,
    DocumentPlace,
    IngestOutcome,
    IngestStatus,
    Upload,
)
from edge_rag.core.documents.listing import EVERYTHING, DocumentSelection, ListCursor, check_document_filter
from edge_rag.core.documents.metadata import Metadata, MetadataValue
from edge_rag.core.documents.parts import MARGIN_CHARACTERS, MAX_RANGE_CHARACTERS, TextPart, parts_of, whole_parts
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest
from edge_rag.service.call import Call, Operation
from edge_rag.storage.spool.files import IncomingFile

INGEST: Final = Operation("Ingest", Role.WRITER, long=True)
GET_DOCUMENT: Final = Operation("Get", Role.READER)
LIST_DOCUMENTS: Final = Operation("List", Role.READER)
UPDATE_DOCUMENT: Final = Operation("UpdateDocument", Role.WRITER)
DELETE_DOCUMENT: Final = Operation("Delete", Role.WRITER)
LIST_CHUNKS: Final = Operation("ListChunks", Role.READER)
GET_CHUNK_TERMS: Final = Operation("GetChunkTerms", Role.READER)


@dataclass(frozen=True, slots=True)
class UploadHeader:
    """The beginning of a document in a stream of uploads.

    Attributes:
        media_type: Its media type; empty if unknown.
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

Uploads: TypeAlias = AsyncGenerator[Upload | IngestOutcome, None]
"""Complete documents, and outcomes of documents that were rejected while they arrived."""

MAX_TEXT_BYTES: Final = 256 << 10
"""Most bytes of a document's text in one response, in UTF-8."""


MAX_PAGE_BYTES: Final = 512 << 10
"""Bytes of stored records after which a page ends."""

_AFTER: Final = b"after:"


async def receive(call: Call, parts: AsyncIterator[UploadPart]) -> Uploads:
    """Receives documents to the spool, one at a time; waits while the caller's share of it is full.

    A document's bytes are deleted when the next one begins or the generator is closed, unless a job has accepted it.
    """
    most = call.backend.document_bytes
    started = False
    document: _Reception | None = None  # None also while the rest of a rejected one is skipped
    try:
        async for part in parts:
            if isinstance(part, UploadHeader):
                call.check_collection(part.collection)
                if document is not None:
                    await document.close()
                started, document = True, None
                if (part.size_bytes or 0) > most:
                    yield _too_large(part, f"{part.size_bytes:,} bytes", most)
                else:
                    document = await _Reception.open(call, part)
            elif not started:
                raise InvalidRequest("header", "must come before the content of a document")
            elif document is None:
                continue
            elif isinstance(part, UploadEnd):
                yield await document.finish()
            else:
                await document.write(part)
                if document.size_bytes > most:
                    await document.close()
                    yield _too_large(document.header, "more", most)
                    document = None
    finally:
        if document is not None:
            await document.close()


class _Reception:
    """A document that is being received."""

    def __init__(self, header: UploadHeader, incoming: IncomingFile, owner: str, most: int) -> None:
        self.header = header
        self.size_bytes = 0
        self._incoming = incoming
        self._owner = owner
        self._most = most if header.size_bytes is None else header.size_bytes

    @classmethod
    async def open(cls, call: Call, header: UploadHeader) -> _Reception:
        """Waits for room in the spool."""
        owner, most = call.identity.name, call.backend.document_bytes
        incoming = call.backend.spool.receive(owner, most if header.size_bytes is None else header.size_bytes)
        try:
            await asyncio.wrap_future(incoming.granted)
        except BaseException:
            incoming.discard()
            raise
        return cls(header, incoming, owner, most)

    async def write(self, piece: bytes) -> None:
        """Writes the next bytes; those beyond the announced or the allowed size are only counted."""
        self.size_bytes += len(piece)
        if self.size_bytes <= self._most:
            await asyncio.to_thread(self._incoming.write, piece)

    async def finish(self) -> Upload | IngestOutcome:
        header = self.header
        if header.size_bytes is not None and self.size_bytes != header.size_bytes:
            reason = f"{self.size_bytes:,} bytes came, {header.size_bytes:,} were announced; send it again"
            return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
        content = await asyncio.to_thread(self._incoming.finish)
        return Upload(header.collection, header.name, header.media_type, content, header.metadata, self._owner)

    async def close(self) -> None:
        """Deletes the received bytes, unless a job has accepted them; idempotent."""
        await asyncio.shield(asyncio.to_thread(self._incoming.discard))


async def ingest(call: Call, uploads: Uploads) -> AsyncGenerator[IngestOutcome, None]:
    async with aclosing(uploads):
        async for upload in uploads:
            yield await call.backend.ingest.ingest(upload, call.trace) if isinstance(upload, Upload) else upload


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document's record and a range of its text.

    Attributes:
        text: At most ``MAX_TEXT_BYTES`` in UTF-8.
        end: One past the last character in ``text``.
    """

    info: DocumentInfo
    text: str
    end: int


async def get(
    call: Call, collection: str, document: str, start: int | None = None, end: int | None = None
) -> DocumentText:
    """Returns a document, by id or by name, with a range of its text or as much of the range as a response holds.

    Args:
        start: First character; None for the whole text.
        end: One past the last character; None for the end of the text. Without ``start`` it has no meaning.
    """
    call.check_collection(collection)
    first, past = (0, None) if start is None else (start, end)
    get_range = call.backend.documents.get
    info, text = await call.run(get_range, collection, document, first, past, MAX_TEXT_BYTES)
    if start is None and len(text) < info.characters:
        reason = (
            f"is missing: the text has {info.characters:,} characters, and a response holds {MAX_TEXT_BYTES:,} bytes; "
            "ask for ranges (a newer client does)"
        )
        raise InvalidRequest("start", reason)
    return DocumentText(info, text, min(first, info.characters) + len(text))


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """A range of a document's text with its parts.

    Attributes:
        start: First character of the range.
        end: One past the last one.
        parts: Headings, tables and other text of the range, in order.
    """

    info: DocumentInfo
    text: str
    start: int
    end: int
    parts: tuple[TextPart, ...]


async def get_parts(call: Call, collection: str, document: str, start: int, end: int) -> DocumentParts:
    """Returns a range of a document's text, by id or by name, widened to whole parts as far as those are short.

    Ranges that begin where another one ended fit together without a gap.
    """
    call.check_collection(collection)
    if not start < end <= start + MAX_RANGE_CHARACTERS:
        raise InvalidRequest("end", f"must be 1 to {MAX_RANGE_CHARACTERS:,} characters after start, is {end - start:,}")
    at, until = max(0, start - MARGIN_CHARACTERS), end + MARGIN_CHARACTERS
    info, around, chunks = await call.run(call.backend.documents.get_with_chunks, collection, document, at, until)
    if start >= info.characters:
        return DocumentParts(info, "", info.characters, info.characters, ())
    first, past = whole_parts(around, at, start, min(end, info.characters), info.characters)
    text = around[first - at : past - at]
    return DocumentParts(info, text, first, past, tuple(parts_of(text, first, chunks)))


async def place(call: Call, collection: str, document: str, position: int) -> DocumentPlace:
    """Returns where in a document a character of its text is, by id or by name of the document."""
    call.check_collection(collection)
    return await call.run(call.backend.documents.place, collection, document, position)


async def list_page(
    call: Call, collection: str, after: DocumentId | None, size: int
) -> tuple[tuple[DocumentInfo, ...], DocumentId | None]:
    """Returns up to ``size`` records in order of id, and the id after which the next page begins; None at the end.

    A page of large records is shorter (``MAX_PAGE_BYTES``).
    """
    place = None if after is None else ListCursor(after, after)
    found, following = await select_page(call, collection, EVERYTHING, place, size)
    return found, None if following is None else following.document_id


async def select_page(
    call: Call, collection: str, selection: DocumentSelection, after: ListCursor | None, size: int, skip: int = 0
) -> tuple[tuple[DocumentInfo, ...], ListCursor | None]:
    """Returns up to ``size`` records of a selection, and the place where the next page begins; None at the end.

    A page of large records is shorter (``MAX_PAGE_BYTES``).

    Args:
        selection: Which documents, in which order.
        after: Where the page begins; None for the beginning.
    """
    call.check_collection(collection)
    check_document_filter(selection.filter)
    read_page = partial(call.backend.documents.list, selection=selection)
    found = await call.run(partial(read_page, skip=skip), collection, after, size, MAX_PAGE_BYTES)
    if not found:
        return (), None
    end = ListCursor.after(found[-1], selection.order)
    return found, end if await call.run(read_page, collection, end, 1) else None


async def count(call: Call, collection: str, selection: DocumentSelection) -> int:
    call.check_collection(collection)
    check_document_filter(selection.filter)
    return await call.run(call.backend.documents.count, collection, selection)


async def list_chunks(call: Call, collection: str, document: str, after: int | None, size: int) -> ChunkPage:
    """Returns up to ``size`` chunks of a document, by id or by name, after the one of a position.

    A page of long chunks is shorter (``MAX_TEXT_BYTES``).
    """
    call.check_collection(collection)
    return await call.run(call.backend.library.chunks, collection, document, after, size, MAX_TEXT_BYTES)


async def chunk_terms(call: Call, collection: str, document: str, position: int) -> ChunkTerms:
    call.check_collection(collection)
    return await call.run(call.backend.documents.chunk_terms, collection, document, position)


async def update_metadata(call: Call, collection: str, document: str, given: Metadata) -> DocumentInfo:
    call.check_collection(collection)
    return await call.run(call.backend.library.update_metadata, collection, document, given)


def page_token(last: DocumentId | None) -> str:
    return "" if last is None else base64.urlsafe_b64encode(_AFTER + last.encode()).decode()


def parse_page_token(token: str, field: str = "page_token") -> DocumentId | None:
    """Returns the document that a page comes after; None for the first page."""
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token)
        if text.startswith(_AFTER):
            return DocumentId(text.removeprefix(_AFTER).decode())
    except ValueError:  # binascii.Error and UnicodeDecodeError are such errors
        pass
    raise InvalidRequest(field, "was not issued by this server")


async def delete(call: Call, collection: str, document: str) -> DocumentInfo:
    call.check_collection(collection)
    return await call.run(call.backend.library.delete, collection, document)


def _too_large(header: UploadHeader, size: str, most: int) -> IngestOutcome:
    reason = f"has {size}, at most {most:,} bytes are allowed (ingest.document_mib)"
    return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
