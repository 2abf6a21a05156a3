"""The Collections service."""

from __future__ import annotations

import asyncio

from edge_rag.api.v1 import collections_pb2, collections_pb2_grpc
from edge_rag.core.identity import Role
from edge_rag.server.call import Call, CallContext, ServicerContext
from edge_rag.wire import collections as collection_messages
from edge_rag.wire import requests as wire


class CollectionsService(collections_pb2_grpc.CollectionsServicer):
    """Keeps collections.

    Args:
        calls: Lets calls in and sees them out.
    """

    def __init__(self, calls: CallContext) -> None:
        self._calls = calls

    async def Create(  # noqa: N802, D102 - named and described by the proto
        self, request: collections_pb2.CreateCollectionRequest, context: ServicerContext
    ) -> collections_pb2.CreateCollectionResponse:
        async with self._calls.serve(Role.WRITER, "CreateCollection", context) as call:
            name, settings = _named(call, request.name), collection_messages.parse_settings(request.settings)
            made = await asyncio.to_thread(call.backend.collections.create, name, settings)
            return collections_pb2.CreateCollectionResponse(collection=collection_messages.collection_to_message(made))

    async def Get(  # noqa: N802, D102 - named and described by the proto
        self, request: collections_pb2.GetCollectionRequest, context: ServicerContext
    ) -> collections_pb2.GetCollectionResponse:
        async with self._calls.serve(Role.READER, "GetCollection", context) as call:
            found = await asyncio.to_thread(call.backend.collections.get, _named(call, request.name))
            return collections_pb2.GetCollectionResponse(collection=collection_messages.collection_to_message(found))

    async def List(  # noqa: N802, D102 - named and described by the proto
        self, request: collections_pb2.ListCollectionsRequest, context: ServicerContext
    ) -> collections_pb2.ListCollectionsResponse:
        async with self._calls.serve(Role.READER, "ListCollections", context) as call:
            found = await asyncio.to_thread(call.backend.collections.list)
            return collections_pb2.ListCollectionsResponse(
                collections=[
                    collection_messages.collection_to_message(info) for info in found if call.identity.sees(info.name)
                ]
            )

    async def Update(  # noqa: N802, D102 - named and described by the proto
        self, request: collections_pb2.UpdateCollectionRequest, context: ServicerContext
    ) -> collections_pb2.UpdateCollectionResponse:
        async with self._calls.serve(Role.WRITER, "UpdateCollection", context) as call:
            name, changes = _named(call, request.name), collection_messages.parse_settings_update(request)
            changed = await asyncio.to_thread(call.backend.collections.update, name, changes)
            return collections_pb2.UpdateCollectionResponse(
                collection=collection_messages.collection_to_message(changed)
            )

    async def Delete(  # noqa: N802, D102 - named and described by the proto
        self, request: collections_pb2.DeleteCollectionRequest, context: ServicerContext
    ) -> collections_pb2.DeleteCollectionResponse:
        async with self._calls.serve(Role.WRITER, "DeleteCollection", context) as call:
            removed = await asyncio.to_thread(call.backend.collections.delete, _named(call, request.name))
            return collections_pb2.DeleteCollectionResponse(
                collection=collection_messages.collection_to_message(removed)
            )


def _named(call: Call, given: str) -> str:
    """The collection that a request names; who may not use it is told that there is none."""
    return call.collection(wire.parse_collection_name(given))
