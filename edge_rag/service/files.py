"""Files: bytes that are sent in one step, and become documents of collections in another.

A file belongs to the identity that sends it, which sees it, as does an admin. Its document is seen by whoever sees the
collection. A document that came another way is a file too, whose id is the document's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from edge_rag.core.documents.document import Content, DocumentInfo, Upload
from edge_rag.core.documents.files import Attachment, FileId, FileState, NewFile, StoredFile
from edge_rag.core.documents.jobs import Job, JobDocumentState, JobId
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.errors import (
    CollectionNotFound,
    DocumentNotFound,
    DocumentTooLarge,
    FileIncomplete,
    FileNotFound,
    InvalidRequest,
    JobNotFound,
    NotFound,
    StorageCorrupt,
    StorageError,
)
from edge_rag.service import documents
from edge_rag.service.call import Call, Operation
from edge_rag.storage.spool.originals import OriginalFile
from edge_rag.storage.uploads.attachments import AttachmentPage
from edge_rag.storage.uploads.files import IncomingFile

CREATE_FILE: Final = Operation("CreateFile", Role.WRITER, long=True)
GET_FILE: Final = Operation("GetFile", Role.READER, other_role=Role.WRITER)
LIST_FILES: Final = Operation("ListFiles", Role.READER, other_role=Role.WRITER)
READ_FILE: Final = Operation("ReadFile", Role.READER, long=True, other_role=Role.WRITER)
DELETE_FILE: Final = Operation("DeleteFile", Role.WRITER)
ATTACH_FILES: Final = Operation("AttachFiles", Role.WRITER, long=True)
DETACH_FILE: Final = Operation("DetachFile", Role.WRITER)
GET_ATTACHED: Final = Operation("GetAttachedFile", Role.READER, other_role=Role.WRITER)
LIST_ATTACHED: Final = Operation("ListAttachedFiles", Role.READER, other_role=Role.WRITER)

MAX_ATTACHED: Final = 500
"""Most files that one call attaches."""

PIECE_BYTES: Final = 256 << 10
"""Bytes of a file that are read at once."""


class SameName(Enum):
    """What becomes of a document of other bytes that has the name of a file that is attached.

    REPLACE: It is replaced and keeps its id, as by any ingest. KEEP: It stays; the file's document gets a name of its
    own, ``NAME (ID).EXTENSION`` with the end of the file's id.
    """

    REPLACE = "replace"
    KEEP = "keep"


async def receive(call: Call, name: str, media_type: str, pieces: AsyncIterator[bytes]) -> IncomingFile:
    """Receives the bytes of a file; pair it with ``IncomingFile.finish`` or ``discard``."""
    most = call.backend.document_bytes
    new = NewFile(call.identity.name, name, media_type)
    incoming = await call.run(call.backend.files.receive, new, most)
    try:
        async for piece in pieces:
            if incoming.size_bytes + len(piece) > most:
                raise DocumentTooLarge(f"the file has more, at most {most:,} bytes are allowed (ingest.document_mib)")
            await asyncio.to_thread(incoming.write, piece)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(incoming.discard))
        raise
    return incoming


async def get(call: Call, file_id: str) -> StoredFile | DocumentInfo:
    with suppress(FileNotFound):
        return await _own(call, file_id)
    return await _document(call, file_id)


async def list_page(
    call: Call, purpose: str | None, after: str | None, size: int, *, newest_first: bool
) -> tuple[tuple[StoredFile, ...], bool]:
    owner = None if call.identity.is_a(Role.ADMIN) else call.identity.name
    place = None if after is None else FileId(after)
    read_page = partial(call.backend.files.list, newest_first=newest_first)
    found = await call.run(read_page, owner, purpose, place, size + 1)
    return found[:size], len(found) > size


async def read(call: Call, file: StoredFile | DocumentInfo) -> AsyncGenerator[bytes, None]:
    """Yields the bytes of a file or document that ``get`` returned; those of a document if its original is kept."""
    if isinstance(file, DocumentInfo) or file.state is FileState.RELEASED:
        with closing(await _original(call, file)) as original:
            position = 0
            while piece := await asyncio.to_thread(original.read, position, PIECE_BYTES):
                yield piece
                position += len(piece)
        return
    content = call.backend.files.content(file)
    try:
        opened = await asyncio.to_thread(content.path.open, "rb")
    except FileNotFoundError as error:
        raise StorageCorrupt(f"the bytes of file {file.file_id} are missing") from error
    except OSError as error:
        raise StorageError(f"{content.path} could not be read: {error.strerror}") from error
    try:
        while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
            yield piece
    finally:
        opened.close()


async def delete(call: Call, file_id: str) -> None:
    """Removes a file of the caller and the documents that were made of it; or else a document, by its id."""
    try:
        found: StoredFile | DocumentInfo = await _own(call, file_id)
    except FileNotFound:
        found = await _document(call, file_id)
    if isinstance(found, DocumentInfo):
        await call.run(call.backend.library.delete, found.collection, found.document_id)
        return
    for collection in await call.run(call.backend.attachments.of_file, file_id):
        if call.identity.can_see(collection):
            await _end_attachment(call, collection, file_id)
    await call.run(call.backend.files.delete, FileId(file_id))


@dataclass(frozen=True, slots=True)
class FileToAttach:
    """A file that becomes a document.

    Attributes:
        name: Name of the document; empty for the file's own.
    """

    file_id: str
    metadata: Metadata
    name: str = ""


async def attach(
    call: Call, collection: str, files: Sequence[FileToAttach], same_name: SameName
) -> tuple[Job, tuple[Attachment, ...]]:
    """Makes documents of files, as one job. The first one creates the collection if necessary.

    On return the job has accepted all files: they are stored even if the daemon is killed. Attaching a file again
    makes its document anew. ``file_state`` and ``list_attached`` report their results, also long after the job's
    record was deleted.

    Args:
        files: 1 to ``MAX_ATTACHED`` files.
        same_name: What becomes of documents of other bytes with their names.
    """
    call.check_collection(collection)
    if not 1 <= len(files) <= MAX_ATTACHED:
        raise InvalidRequest("file_ids", f"must be 1 to {MAX_ATTACHED} files, are {len(files):,}")
    found = [await _own(call, file.file_id) for file in files]
    for stored in found:
        if stored.state is FileState.RELEASED:
            (await _original(call, stored)).close()
        else:
            call.backend.files.content(stored)
    jobs = call.backend.ingest
    job = jobs.start(call.identity.name)
    try:
        for stored, wanted in zip(found, files, strict=True):
            content, discard = await _received(call, stored)
            upload = Upload(
                collection,
                wanted.name or stored.about.name,
                stored.about.media_type,
                content,
                wanted.metadata,
                call.identity.name,
                stored.file_id,
            )
            try:
                await asyncio.to_thread(_accept, call, job.job_id, upload, same_name)
            finally:
                await asyncio.shield(asyncio.to_thread(discard))  # nothing once the job has accepted it
    finally:
        # Also if the client disconnects: accepted documents are stored, and the job ends with the last one.
        await asyncio.shield(asyncio.to_thread(jobs.finish_uploads, job.job_id))
    return job, tuple([await file_state(call, collection, file.file_id) for file in files])


async def file_state(call: Call, collection: str, file_id: str) -> Attachment:
    call.check_collection(collection)
    return _visible(call, await call.run(call.backend.attachments.get, collection, file_id))


async def list_attached(call: Call, collection: str, page: AttachmentPage) -> tuple[tuple[Attachment, ...], bool]:
    """Returns a page of a collection's files and other documents, and whether more follow.

    With ``page.job_id`` it is what became of the files of one ``attach``.
    """
    call.check_collection(collection)
    found = await call.run(call.backend.attachments.list, collection, replace(page, limit=page.limit + 1))
    return tuple(_visible(call, each) for each in found[: page.limit]), len(found) > page.limit


async def attached_counts(
    call: Call, collection: str, job_id: JobId | None = None
) -> Mapping[JobDocumentState, tuple[int, int]]:
    """Returns number and bytes of a collection's files and other documents by state, or those of one ``attach``."""
    call.check_collection(collection)
    counts = await call.run(call.backend.attachments.counts, collection, job_id)
    if job_id is not None and not counts:
        raise JobNotFound(job_id)
    return counts


async def files_of(call: Call, collection: str, documents: Sequence[DocumentId]) -> dict[DocumentId, str]:
    call.check_collection(collection)
    found = await call.run(call.backend.attachments.files_of, collection, documents)
    return {document: found.get(document, document) for document in documents}


async def detach(call: Call, collection: str, file_id: str) -> None:
    """Removes the document of a file from a collection, or has it not stored if it waits; the file stays.

    Of a document that came another way, ``file_id`` is the document's id.
    """
    state = await file_state(call, collection, file_id)
    if state.document_id == file_id:
        await _delete_document(call, collection, state.document_id)
    else:
        await _end_attachment(call, collection, file_id)


async def update_metadata(call: Call, collection: str, file_id: str, given: Metadata) -> Attachment:
    """Replaces the metadata that was given with a file's document, which is stored; returns its new state.

    Of a document that came another way, ``file_id`` is the document's id.
    """
    state = await file_state(call, collection, file_id)
    if state.document_id is None:
        raise InvalidRequest("file_id", f"{file_id[:256]!r} is not stored in the collection, so it has no metadata yet")
    await documents.update_metadata(call, collection, state.document_id, given)
    return await file_state(call, collection, file_id)


def _visible(call: Call, attachment: Attachment) -> Attachment:
    return attachment if call.identity.is_a(Role.READER) else replace(attachment, metadata={})


async def _own(call: Call, file_id: str) -> StoredFile:
    found = await call.run(call.backend.files.get, FileId(file_id))
    if found.about.owner != call.identity.name and not call.identity.is_a(Role.ADMIN):
        raise FileNotFound(file_id)
    return found


async def _document(call: Call, document: str) -> DocumentInfo:
    found = await call.run(call.backend.documents.by_id, DocumentId(document))
    if found is None or not (call.identity.is_a(Role.READER) and call.identity.can_see(found.collection)):
        raise FileNotFound(document)
    return found


async def _original(call: Call, file: StoredFile | DocumentInfo) -> OriginalFile:
    if isinstance(file, DocumentInfo):
        return (await call.run(call.backend.documents.open_original, file.collection, file.document_id))[1]
    for collection in await call.run(call.backend.attachments.of_file, file.file_id):
        with suppress(NotFound):
            state = await file_state(call, collection, file.file_id)
            if state.document_id is not None:
                return (await call.run(call.backend.documents.open_original, collection, state.document_id))[1]
    raise FileIncomplete(f"the bytes of file {file.file_id} are not kept any more; send it again")


async def _received(call: Call, file: StoredFile) -> tuple[Content, Callable[[], None]]:
    """Returns the bytes of a file as the spool has received them, and what deletes them unless a job accepts them."""
    files = call.backend.files
    if file.state is not FileState.RELEASED:
        linked = await asyncio.to_thread(files.link, file)
        return linked, partial(files.unlink, linked)
    with closing(await _original(call, file)) as original:
        incoming = call.backend.spool.receive(call.identity.name, original.size_bytes)
        try:
            await asyncio.wrap_future(incoming.granted)
            position = 0
            while piece := await asyncio.to_thread(original.read, position, PIECE_BYTES):
                await asyncio.to_thread(incoming.write, piece)
                position += len(piece)
            return await asyncio.to_thread(incoming.finish), incoming.discard
        except BaseException:
            await asyncio.shield(asyncio.to_thread(incoming.discard))
            raise


def _accept(call: Call, job_id: JobId, upload: Upload, same_name: SameName) -> None:
    with call.backend.files.naming:
        if same_name is SameName.KEEP:
            place = upload.collection, upload.file, upload.name, upload.content.sha256
            upload = replace(upload, name=call.backend.attachments.free_name(*place))
        call.backend.ingest.accept(job_id, upload)


async def _end_attachment(call: Call, collection: str, file_id: str) -> None:
    document = await call.run(call.backend.attachments.end, collection, file_id)
    if document is not None:
        await _delete_document(call, collection, document)


async def _delete_document(call: Call, collection: str, document: DocumentId) -> None:
    with suppress(DocumentNotFound, CollectionNotFound):  # somebody else has deleted it meanwhile
        await call.run(call.backend.library.delete, collection, document)
