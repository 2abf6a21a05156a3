"""The Rag service over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service.ask import ASK, SEARCH, ask, search
from edge_rag.wire import answers as messages
from edge_rag.wire import requests as wire


class RagService(rag_pb2_grpc.RagServicer):
    """Answers and searches."""

    def __init__(self, calls: GrpcCalls, limits: RequestLimits) -> None:
        self._calls = calls
        self.limits = limits

    @serves(ASK)
    async def Ask(  # noqa: N802 - named and described by the proto
        self, request: rag_pb2.AskRequest, context: ServicerContext
    ) -> AsyncIterator[rag_pb2.AskResponse]:
        async with self._calls.handle(context, request.request_id, request.question) as call:
            async with ask(call, wire.parse_query(request, call.asker(self.limits))) as events:
                async for event in events:
                    yield messages.event_to_message(event)

    @serves(SEARCH)
    async def Search(  # noqa: N802 - named and described by the proto
        self, request: rag_pb2.SearchRequest, context: ServicerContext
    ) -> rag_pb2.SearchResponse:
        async with self._calls.handle(context, request.request_id, request.query) as call:
            found = await search(call, wire.parse_search_query(request, call.asker(self.limits)))
            return messages.search_to_message(
                found.passages, found.stages, found.explanations, found.standalone_question, found.did_you_mean
            )
