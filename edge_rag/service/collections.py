"""Collections and their vector indexes."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any, Final

from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings
from edge_rag.core.identity import Role
from edge_rag.core.limits.request_fields import MAX_NAME_CHARACTERS, name_of_title
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.errors import CollectionExists
from edge_rag.service.call import Call, Operation

CREATE_COLLECTION: Final = Operation("CreateCollection", Role.ADMIN)
GET_COLLECTION: Final = Operation("GetCollection", Role.READER)
LIST_COLLECTIONS: Final = Operation("ListCollections", Role.READER)
UPDATE_COLLECTION: Final = Operation("UpdateCollection", Role.ADMIN)
DELETE_COLLECTION: Final = Operation("DeleteCollection", Role.ADMIN)
MOVE_INDEX: Final = Operation("MoveIndex", Role.ADMIN, long=True)


async def create(call: Call, name: str, settings: CollectionSettings) -> CollectionInfo:
    """Creates an empty collection.

    Raises:
        CollectionNotFound: The caller may not use a collection of that name.
        CollectionExists: A collection has that name.
    """
    call.check_collection(name)
    return await call.run(call.backend.collections.create, name, settings)


async def create_titled(call: Call, settings: CollectionSettings) -> CollectionInfo:
    """Creates an empty collection with a title, whose name resembles it; the title itself where that is a legal name.

    A name that is not the title gets random digits where it is taken or empty.

    Raises:
        CollectionNotFound: The caller may not use a collection of that name.
        CollectionExists: The title is the name of a collection.
    """
    name, digits = name_of_title(settings.title), secrets.token_hex(6)
    if name and name == settings.title:
        return await create(call, name, replace(settings, title=""))
    if name:
        try:
            return await create(call, name, settings)
        except CollectionExists:
            name = f"{name[: MAX_NAME_CHARACTERS - len(digits) - 1]}-{digits}"
    return await create(call, name or f"collection-{digits}", settings)


async def get(call: Call, name: str) -> CollectionInfo:
    """Returns a collection.

    Raises:
        CollectionNotFound: It does not exist for the caller.
    """
    call.check_collection(name)
    return await call.run(call.backend.collections.get, name)


async def list_visible(call: Call) -> tuple[CollectionInfo, ...]:
    """Returns the collections that exist for the caller, by name."""
    found = await call.run(call.backend.collections.list)
    return tuple(info for info in found if call.identity.can_see(info.name))


async def update(call: Call, name: str, changes: dict[str, Any]) -> CollectionInfo:
    """Changes settings by field name of ``CollectionSettings``.

    Raises:
        CollectionNotFound: It does not exist for the caller.
    """
    call.check_collection(name)
    return await call.run(call.backend.collections.update, name, changes)


async def delete(call: Call, name: str) -> CollectionInfo:
    """Removes a collection and its contents; durable on return.

    Raises:
        CollectionNotFound: It does not exist for the caller.
    """
    call.check_collection(name)
    return await call.run(call.backend.collections.delete, name)


async def move_index(call: Call, name: str, backend: BackendKind) -> IndexInUse:
    """Moves a collection's vectors to another index backend while searches continue; returns the new index.

    The move completes even if the caller disconnects.

    Raises:
        CollectionNotFound: It does not exist.
        ConfigurationError: The backend is not configured.
        StorageError: The new index could not be filled or failed its check; nothing has changed.
    """
    return await asyncio.shield(asyncio.to_thread(call.backend.library.move_index, name, backend))
