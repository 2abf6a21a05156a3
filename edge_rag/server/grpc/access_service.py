"""The Access service."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from edge_rag.api.v1 import access_pb2, access_pb2_grpc, rag_pb2
from edge_rag.core.identity import Role
from edge_rag.core.pairing_code import is_key, is_secret
from edge_rag.core.query import Priority
from edge_rag.errors import InvalidRequest, Unauthenticated
from edge_rag.server.authentication import Authenticator
from edge_rag.server.call import CallContext, ServicerContext

_ROLES: Final = {
    Role.READER: access_pb2.ROLE_READER,
    Role.WRITER: access_pb2.ROLE_WRITER,
    Role.PEER: access_pb2.ROLE_PEER,
    Role.ADMIN: access_pb2.ROLE_ADMIN,
}
_PRIORITIES: Final = {
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}

log = structlog.get_logger()


class AccessService(access_pb2_grpc.AccessServicer):
    """Tells callers who they are, and makes newcomers known.

    Args:
        calls: Lets calls in and sees them out.
        doorkeeper: Has credentials for newcomers.
    """

    def __init__(self, calls: CallContext, doorkeeper: Authenticator) -> None:
        self._calls = calls
        self._doorkeeper = doorkeeper

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

    async def Pair(  # noqa: N802, D102
        self, request: access_pb2.PairRequest, context: ServicerContext
    ) -> access_pb2.PairResponse:
        async with self._calls.serve(None, "Pair", context, needs_identity=False):
            if not is_key(request.key):
                raise InvalidRequest("key", "must be the 4 symbols of a code's key")
            if not is_secret(request.secret):
                raise InvalidRequest("secret", "must be the 12 symbols of a code's secret")
            try:
                # The file is written and synced before there is an answer.
                newcomers = self._doorkeeper.newcomers
                admitted = await asyncio.to_thread(newcomers.admit, request.key, request.secret)
            except Unauthenticated:
                log.warning("a wrong pairing code was shown", peer=context.peer())
                raise
            log.info("paired", name=admitted.identity.name, peer=context.peer())
            return access_pb2.PairResponse(
                name=admitted.identity.name,
                token=admitted.token,
                authority=admitted.introduction.authority,
                server_name=admitted.introduction.server_name,
                box=admitted.box,
            )
