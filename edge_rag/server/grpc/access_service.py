"""The Access service."""

from __future__ import annotations

import asyncio

import structlog

from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.core.pairing_code import is_key, is_secret
from edge_rag.errors import InvalidRequest, Unauthenticated
from edge_rag.server.authentication import Authenticator
from edge_rag.server.call import CallContext, ServicerContext
from edge_rag.wire.admin import identity_to_message

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
            return identity_to_message(call.identity)

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
