"""The Access service."""

from __future__ import annotations

from typing import Final

from edge_rag.api.v1 import access_pb2, access_pb2_grpc, rag_pb2
from edge_rag.core.identity import Role
from edge_rag.core.query import Priority
from edge_rag.server.calls import Calls, ServicerContext

_ROLES: Final = {
    Role.READER: access_pb2.ROLE_READER,
    Role.WRITER: access_pb2.ROLE_WRITER,
    Role.ADMIN: access_pb2.ROLE_ADMIN,
}
_PRIORITIES: Final = {
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}


class AccessService(access_pb2_grpc.AccessServicer):
    """Tells callers who they are.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def WhoAmI(  # noqa: N802, D102 - named and described by the proto
        self, request: access_pb2.WhoAmIRequest, context: ServicerContext
    ) -> access_pb2.WhoAmIResponse:
        async with self._calls.serve(None, "WhoAmI", context) as call:
            who = call.identity
            return access_pb2.WhoAmIResponse(
                name=who.name,
                roles=[_ROLES[role] for role in Role if role in who.roles],
                every_collection=who.collections is None,
                collections=sorted(who.collections or ()),
                priority_max=_PRIORITIES[who.priority_ceiling],
            )
