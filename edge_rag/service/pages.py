"""Originals of documents and their pages: downloads, pictures, and where a range of the text is."""

from __future__ import annotations

from math import ceil
from typing import Final

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.identity import Role
from edge_rag.core.query import RequestContext
from edge_rag.errors import InvalidRequest
from edge_rag.ingest.page_images import DEFAULT_WIDTH, MarkedPage, PagePicture
from edge_rag.service.call import TOKENS_PER_CPU_SECOND, Call, Operation
from edge_rag.storage.spool.originals import OriginalFile

GET_ORIGINAL: Final = Operation("GetOriginal", Role.READER, long=True)
GET_PAGE: Final = Operation("GetPage", Role.READER)
GET_PAGE_BOXES: Final = Operation("GetPageBoxes", Role.READER)


async def open_original(call: Call, collection: str, document: str) -> tuple[DocumentInfo, OriginalFile]:
    """Opens the bytes of a document as they were ingested, by id or by name; the caller closes them."""
    call.check_collection(collection)
    return await call.run(call.backend.documents.open_original, collection, document)


async def read_original(call: Call, original: OriginalFile, position: int, size: int) -> bytes:
    return await call.run(original.read, position, size)


async def picture(
    call: Call, collection: str, document: str, page: int, width: int | None, marked: tuple[int, int] | None
) -> PagePicture:
    """Draws a page of a PDF, by id or by name; the caller's quota is charged for the time.

    Args:
        width: Width of the picture, pixels; None for ``DEFAULT_WIDTH``.
        marked: Range of the text that is marked on it; None for none.
    """
    call.check_collection(collection)
    if marked is not None:
        _check_range(*marked)
    wanted = DEFAULT_WIDTH if width is None else width
    found = await call.backend.pages.picture(collection, document, page, wanted, marked, _context(call))
    call.charge(ceil(found.compute_s * TOKENS_PER_CPU_SECOND))
    return found.value


async def boxes(call: Call, collection: str, document: str, page: int, start: int, end: int) -> MarkedPage:
    """Finds a range of a document's text on a page of a PDF; the caller's quota is charged for the time."""
    call.check_collection(collection)
    _check_range(start, end)
    found = await call.backend.pages.boxes(collection, document, page, start, end, _context(call))
    call.charge(ceil(found.compute_s * TOKENS_PER_CPU_SECOND))
    return found.value


def _check_range(start: int, end: int) -> None:
    if start >= end:
        raise InvalidRequest("end", f"must be after start ({start:,}), is {end:,}")


def _context(call: Call) -> RequestContext:
    return RequestContext(call.request_id, call.identity.name, deadline=call.deadline)
