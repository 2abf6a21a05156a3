"""From protobuf to values: who calls."""

from __future__ import annotations

from typing import Final

from edge_rag.api.v1 import access_pb2, rag_pb2
from edge_rag.core.identity import Identity, Role
from edge_rag.core.query import Priority

_ROLES: Final = {
    access_pb2.ROLE_READER: Role.READER,
    access_pb2.ROLE_WRITER: Role.WRITER,
    access_pb2.ROLE_PEER: Role.PEER,
    access_pb2.ROLE_ADMIN: Role.ADMIN,
}
_PRIORITIES: Final = {
    rag_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    rag_pb2.PRIORITY_BATCH: Priority.BATCH,
}


def identity(message: access_pb2.WhoAmIResponse) -> Identity:
    """Reads who a caller is; roles that this client does not know are left out."""
    return Identity(
        name=message.name,
        roles=frozenset(_ROLES[role] for role in message.roles if role in _ROLES),
        collections=None if message.every_collection else frozenset(message.collections),
        priority_ceiling=_PRIORITIES.get(message.priority_max, Priority.INTERACTIVE),
    )
