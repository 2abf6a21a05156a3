"""The Admin service."""

from __future__ import annotations

import asyncio

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc
from edge_rag.server import messages
from edge_rag.server.calls import Calls, ServicerContext


class AdminService(admin_pb2_grpc.AdminServicer):
    """Looks into the daemon.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def GetStatus(  # noqa: N802, D102 - named and described by the proto
        self, request: admin_pb2.GetStatusRequest, context: ServicerContext
    ) -> admin_pb2.GetStatusResponse:
        async with self._calls.serve("GetStatus", context) as call:
            return messages.status(await asyncio.to_thread(call.backend.status))
