"""The Admin service over gRPC."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service import collections, status
from edge_rag.telemetry.audit_log import AuditPage
from edge_rag.wire import admin as admin_messages
from edge_rag.wire import requests as wire
from edge_rag.wire import status as status_messages


class AdminService(admin_pb2_grpc.AdminServicer):
    """Status, audit log, usage, models, indexes and backup, for operators."""

    def __init__(self, calls: GrpcCalls) -> None:
        self._calls = calls

    @serves(status.GET_STATUS)
    async def GetStatus(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.GetStatusRequest, context: ServicerContext
    ) -> admin_pb2.GetStatusResponse:
        async with self._calls.handle(context) as call:
            return status_messages.status_to_message(await status.get_status(call))

    @serves(status.WATCH_STATUS)
    async def WatchStatus(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.WatchStatusRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.WatchStatusResponse]:
        async with self._calls.handle(context) as call:
            async with aclosing(status.watch_status(call, wire.parse_interval(request))) as reports:
                async for report in reports:
                    yield admin_pb2.WatchStatusResponse(status=status_messages.status_to_message(report))

    @serves(status.LIST_AUDIT_EVENTS)
    async def ListAuditEvents(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.ListAuditEventsRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.ListAuditEventsResponse]:
        async with self._calls.handle(context) as call:
            request_id, limit = wire.parse_audit_query(request)
            async with aclosing(status.audit_events(call, request_id, limit, request.follow)) as pages:
                async for page in pages:
                    for response in _responses(page):
                        yield response

    @serves(status.GET_USAGE)
    async def GetUsage(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.GetUsageRequest, context: ServicerContext
    ) -> admin_pb2.GetUsageResponse:
        async with self._calls.handle(context) as call:
            return admin_messages.usage_to_message(status.usage(call))

    @serves(status.USE_MODEL)
    async def UseModel(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.UseModelRequest, context: ServicerContext
    ) -> admin_pb2.UseModelResponse:
        async with self._calls.handle(context) as call:
            model = await status.use_model(call, *wire.parse_use_model(request))
            return admin_pb2.UseModelResponse(model=status_messages.model_to_message(model))

    @serves(collections.MOVE_INDEX)
    async def MoveIndex(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.MoveIndexRequest, context: ServicerContext
    ) -> admin_pb2.MoveIndexResponse:
        async with self._calls.handle(context) as call:
            moved = await collections.move_index(call, *wire.parse_move_index(request))
            return admin_pb2.MoveIndexResponse(index=status_messages.index_to_message(moved))

    @serves(status.BACKUP)
    async def Backup(  # noqa: N802 - named and described by the proto
        self, request: admin_pb2.BackupRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.BackupResponse]:
        async with self._calls.handle(context) as call:
            digest, size = hashlib.sha256(), 0
            async with aclosing(status.backup(call)) as chunks:
                async for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    yield admin_pb2.BackupResponse(content=chunk)
            summary = admin_pb2.BackupResponse.Summary(size_bytes=size, sha256=digest.hexdigest())
            yield admin_pb2.BackupResponse(summary=summary)


def _responses(page: AuditPage) -> list[admin_pb2.ListAuditEventsResponse]:
    responses = [
        admin_pb2.ListAuditEventsResponse(event=admin_messages.audit_entry_to_message(entry)) for entry in page.entries
    ]
    if page.dropped_entries:
        responses = responses or [admin_pb2.ListAuditEventsResponse()]
        responses[0].dropped_entries = page.dropped_entries
    return responses
