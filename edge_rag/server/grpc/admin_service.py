"""The Admin service."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc
from edge_rag.core.identity import Role
from edge_rag.core.monitoring.status import DaemonState
from edge_rag.server.call import CallContext, ServicerContext
from edge_rag.telemetry.audit_log import AuditPage
from edge_rag.wire import admin as admin_messages
from edge_rag.wire import requests as wire
from edge_rag.wire import status as status_messages


class AdminService(admin_pb2_grpc.AdminServicer):
    """Looks into the daemon.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: CallContext) -> None:
        self._calls = calls

    async def GetStatus(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.GetStatusRequest, context: ServicerContext
    ) -> admin_pb2.GetStatusResponse:
        async with self._calls.serve(Role.ADMIN, "GetStatus", context) as call:
            return status_messages.status_to_message(await asyncio.to_thread(call.backend.status))

    async def WatchStatus(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.WatchStatusRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.WatchStatusResponse]:
        async with self._calls.serve(Role.ADMIN, "WatchStatus", context) as call:
            interval_s = wire.parse_interval(request)
            while True:
                report = await asyncio.to_thread(call.backend.status)
                yield admin_pb2.WatchStatusResponse(status=status_messages.status_to_message(report))
                if report.state is DaemonState.DRAINING:
                    return
                await self._calls.drains_within(interval_s)

    async def ListAuditEvents(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.ListAuditEventsRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.ListAuditEventsResponse]:
        async with self._calls.serve(Role.ADMIN, "ListAuditEvents", context) as call:
            request_id, limit = wire.parse_audit_query(request)
            trail = call.backend.trail
            page = trail.entries(request_id, limit=limit)
            for response in _responses(page):
                yield response
            if request.follow:
                async with aclosing(trail.follow(page.last, request_id)) as pages:
                    async for page in pages:
                        for response in _responses(page):
                            yield response

    async def GetUsage(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.GetUsageRequest, context: ServicerContext
    ) -> admin_pb2.GetUsageResponse:
        async with self._calls.serve(Role.ADMIN, "GetUsage", context) as call:
            return admin_messages.usage_to_message(call.backend.usage.since, call.backend.usage.read())

    async def UseModel(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.UseModelRequest, context: ServicerContext
    ) -> admin_pb2.UseModelResponse:
        async with self._calls.serve(Role.ADMIN, "UseModel", context) as call:
            role, name = wire.parse_use_model(request)
            # Not given up half-way when the caller goes: the swap ends by itself, one way or the other.
            model = await asyncio.shield(asyncio.to_thread(call.backend.use_model, role, name))
            return admin_pb2.UseModelResponse(model=status_messages.model_to_message(model))

    async def MoveIndex(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.MoveIndexRequest, context: ServicerContext
    ) -> admin_pb2.MoveIndexResponse:
        async with self._calls.serve(Role.ADMIN, "MoveIndex", context) as call:
            collection, home = wire.parse_move_index(request)
            # Like a swap of models: the move ends by itself, one way or the other.
            moved = await asyncio.shield(asyncio.to_thread(call.backend.library.move_index, collection, home))
            return admin_pb2.MoveIndexResponse(index=status_messages.index_to_message(moved))

    async def Backup(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.BackupRequest, context: ServicerContext
    ) -> AsyncIterator[admin_pb2.BackupResponse]:
        async with self._calls.serve(Role.ADMIN, "Backup", context) as call:
            pieces = await asyncio.to_thread(call.backend.backup)
            digest, size = hashlib.sha256(), 0
            try:
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    digest.update(piece)
                    size += len(piece)
                    yield admin_pb2.BackupResponse(content=piece)
                summary = admin_pb2.BackupResponse.Summary(size_bytes=size, sha256=digest.hexdigest())
                yield admin_pb2.BackupResponse(summary=summary)
            finally:
                await asyncio.shield(asyncio.to_thread(_close, pieces))


def _close(pieces: Iterator[bytes]) -> None:
    if isinstance(pieces, Generator):
        pieces.close()


def _responses(page: AuditPage) -> list[admin_pb2.ListAuditEventsResponse]:
    responses = [
        admin_pb2.ListAuditEventsResponse(event=admin_messages.audit_entry_to_message(entry)) for entry in page.entries
    ]
    if page.dropped_entries:
        responses = responses or [admin_pb2.ListAuditEventsResponse()]
        responses[0].dropped_entries = page.dropped_entries
    return responses
