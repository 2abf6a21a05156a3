"""The Collections service over gRPC."""

from __future__ import annotations

from edge_rag.api.v1 import collections_pb2, collections_pb2_grpc
from edge_rag.core.limits.request_fields import parse_collection_name
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service import collections
from edge_rag.wire import collections as messages


class CollectionsService(collections_pb2_grpc.CollectionsServicer):
    """Creates, describes, changes and removes collections."""

    def __init__(self, calls: GrpcCalls) -> None:
        self._calls = calls

    @serves(collections.CREATE_COLLECTION)
    async def Create(  # noqa: N802 - named and described by the proto
        self, request: collections_pb2.CreateCollectionRequest, context: ServicerContext
    ) -> collections_pb2.CreateCollectionResponse:
        async with self._calls.handle(context) as call:
            name, settings = parse_collection_name(request.name), messages.parse_settings(request.settings)
            created = await collections.create(call, name, settings)
            return collections_pb2.CreateCollectionResponse(collection=messages.collection_to_message(created))

    @serves(collections.GET_COLLECTION)
    async def Get(  # noqa: N802 - named and described by the proto
        self, request: collections_pb2.GetCollectionRequest, context: ServicerContext
    ) -> collections_pb2.GetCollectionResponse:
        async with self._calls.handle(context) as call:
            found = await collections.get(call, parse_collection_name(request.name))
            return collections_pb2.GetCollectionResponse(collection=messages.collection_to_message(found))

    @serves(collections.LIST_COLLECTIONS)
    async def List(  # noqa: N802 - named and described by the proto
        self, request: collections_pb2.ListCollectionsRequest, context: ServicerContext
    ) -> collections_pb2.ListCollectionsResponse:
        async with self._calls.handle(context) as call:
            found = await collections.list_visible(call)
            return collections_pb2.ListCollectionsResponse(collections=messages.collections_to_messages(found))

    @serves(collections.UPDATE_COLLECTION)
    async def Update(  # noqa: N802 - named and described by the proto
        self, request: collections_pb2.UpdateCollectionRequest, context: ServicerContext
    ) -> collections_pb2.UpdateCollectionResponse:
        async with self._calls.handle(context) as call:
            name, changes = parse_collection_name(request.name), messages.parse_settings_update(request)
            updated = await collections.update(call, name, changes)
            return collections_pb2.UpdateCollectionResponse(collection=messages.collection_to_message(updated))

    @serves(collections.DELETE_COLLECTION)
    async def Delete(  # noqa: N802 - named and described by the proto
        self, request: collections_pb2.DeleteCollectionRequest, context: ServicerContext
    ) -> collections_pb2.DeleteCollectionResponse:
        async with self._calls.handle(context) as call:
            deleted = await collections.delete(call, parse_collection_name(request.name))
            return collections_pb2.DeleteCollectionResponse(collection=messages.collection_to_message(deleted))
