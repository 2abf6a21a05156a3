"""The Access service over gRPC."""

from __future__ import annotations

from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service.access import PAIR, WHO_AM_I, pair
from edge_rag.wire.admin import identity_to_message


class AccessService(access_pb2_grpc.AccessServicer):
    """Returns the caller's identity, and pairs new clients."""

    def __init__(self, calls: GrpcCalls) -> None:
        self._calls = calls

    @serves(WHO_AM_I)
    async def WhoAmI(  # noqa: N802 - named and described by the proto
        self, request: access_pb2.WhoAmIRequest, context: ServicerContext
    ) -> access_pb2.WhoAmIResponse:
        async with self._calls.handle(context) as call:
            return identity_to_message(call.identity)

    @serves(PAIR)
    async def Pair(  # noqa: N802 - named and described by the proto
        self, request: access_pb2.PairRequest, context: ServicerContext
    ) -> access_pb2.PairResponse:
        async with self._calls.handle(context) as call:
            paired = await pair(call, request.key, request.secret)
            return access_pb2.PairResponse(
                name=paired.identity.name,
                token=paired.token,
                authority=paired.server_identity.authority,
                server_name=paired.server_identity.server_name,
                box=paired.box,
            )
