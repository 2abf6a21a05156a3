"""The Documents service."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import documents_pb2
from edge_rag.core.documents.document import IngestOutcome, IngestStatus, Upload
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest
from edge_rag.server.call import Call, Calls, ServicerContext
from edge_rag.server.grpc.job_calls import JobCalls
from edge_rag.wire import answers as messages
from edge_rag.wire import requests as wire
from edge_rag.wire.metadata import given_metadata


class DocumentsService(JobCalls):
    """Keeps documents.

    Args:
        calls: Lets calls in and sees them out.
        document_bytes: Largest document.
    """

    def __init__(self, calls: Calls, document_bytes: int) -> None:
        super().__init__(calls)
        self._document_bytes = document_bytes

    async def Ingest(  # noqa: N802, D102 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> documents_pb2.IngestResponse:
        async with self._calls.serve(Role.WRITER, "Ingest", context) as call:
            outcomes = []
            async for upload in self._uploads(call, request_iterator):
                if isinstance(upload, Upload):
                    outcomes.append(messages.outcome(await call.backend.ingesting.ingest(upload, call.trace)))
                else:
                    outcomes.append(messages.outcome(upload))
            return documents_pb2.IngestResponse(outcomes=outcomes)

    async def StartIngest(  # noqa: N802, D102 - named and described by the proto
        self, request_iterator: AsyncIterator[documents_pb2.IngestRequest], context: ServicerContext
    ) -> AsyncIterator[documents_pb2.StartIngestResponse]:
        async with self._calls.serve(Role.WRITER, "StartIngest", context) as call:
            async with aclosing(self.start_ingest(call, self._uploads(call, request_iterator))) as responses:
                async for response in responses:
                    yield response

    async def Get(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.GetDocumentRequest, context: ServicerContext
    ) -> documents_pb2.GetDocumentResponse:
        async with self._calls.serve(Role.READER, "Get", context) as call:
            place, name = call.collection(request.collection), wire.document_name("document", request.document)
            info, text = await asyncio.to_thread(call.backend.library.get, place, name)
            return documents_pb2.GetDocumentResponse(document=messages.document(info), text=text)

    async def List(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.ListDocumentsRequest, context: ServicerContext
    ) -> documents_pb2.ListDocumentsResponse:
        async with self._calls.serve(Role.READER, "List", context) as call:
            size, after = wire.page_size(request), _after(request.page_token)
            place = call.collection(request.collection)
            found = await asyncio.to_thread(call.backend.library.list, place, after, size + 1)
            token = _page_token(found[size - 1].document_id) if len(found) > size else ""
            return documents_pb2.ListDocumentsResponse(
                documents=[messages.document(info) for info in found[:size]], next_page_token=token
            )

    async def Delete(  # noqa: N802, D102 - named and described by the proto
        self, request: documents_pb2.DeleteDocumentRequest, context: ServicerContext
    ) -> documents_pb2.DeleteDocumentResponse:
        async with self._calls.serve(Role.WRITER, "Delete", context) as call:
            place, name = call.collection(request.collection), wire.document_name("document", request.document)
            info = await asyncio.to_thread(call.backend.library.delete, place, name)
            return documents_pb2.DeleteDocumentResponse(document=messages.document(info))

    async def _uploads(
        self, call: Call, parts: AsyncIterator[documents_pb2.IngestRequest]
    ) -> AsyncIterator[Upload | IngestOutcome]:
        header: documents_pb2.IngestRequest.Header | None = None
        content = bytearray()
        size = 0
        refused = False
        async for part in parts:
            if part.HasField("header"):
                if header is not None and not refused:
                    yield self._upload(call, header, content, size)
                header, content, size = part.header, bytearray(), 0
                call.collection(header.collection)
                wire.document_name("name", header.name)
                given_metadata(header.metadata)
                refused = header.size_bytes > self._document_bytes
                if refused:
                    yield self._too_large(header, f"{header.size_bytes:,} bytes")
            elif header is None:
                raise InvalidRequest("header", "must come before the content of a document")
            elif not refused:
                size += len(part.content)
                if size <= self._document_bytes:
                    content += part.content
                else:
                    yield self._too_large(header, "more")
                    refused = True
                    content = bytearray()
        if header is not None and not refused:
            yield self._upload(call, header, content, size)

    def _too_large(self, header: documents_pb2.IngestRequest.Header, size: str) -> IngestOutcome:
        """Refuses a document as soon as it is known to be over the limit; what comes of its content is passed over."""
        reason = f"has {size}, at most {self._document_bytes:,} bytes are allowed (ingest.document_mib)"
        return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)

    def _upload(
        self, call: Call, header: documents_pb2.IngestRequest.Header, content: bytearray, size: int
    ) -> Upload | IngestOutcome:
        if header.HasField("size_bytes") and size != header.size_bytes:
            reason = f"{size:,} bytes came, {header.size_bytes:,} were announced; send it again"
            return IngestOutcome(header.name, IngestStatus.REJECTED, reason=reason)
        metadata = given_metadata(header.metadata)
        return Upload(call.collection(header.collection), header.name, header.media_type, bytes(content), metadata)


def _page_token(last: DocumentId) -> str:
    return base64.urlsafe_b64encode(b"after:" + last.encode()).decode()


def _after(token: str) -> DocumentId | None:
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith("after:"):
        raise InvalidRequest("page_token", "is not one that this server gave")
    return DocumentId(text.removeprefix("after:"))
