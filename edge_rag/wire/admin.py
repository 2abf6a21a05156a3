"""What operators read about calls and callers, to and from protobuf."""

from __future__ import annotations

from typing import Final

from edge_rag.api.v1 import access_pb2, admin_pb2, rag_pb2
from edge_rag.core.identity import Identity, Role
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent
from edge_rag.core.monitoring.metrics import ClientUsage, QuotaUse, UsageReport
from edge_rag.core.query import Priority
from edge_rag.wire.codec import Codec, EnumCodec, moment, timestamp

_EVENT = Codec(AuditEvent, admin_pb2.AuditEvent, names={"at_s": "monotonic_seconds"})
_USAGE = Codec(ClientUsage, admin_pb2.ClientUsage)
_QUOTA = Codec(QuotaUse, admin_pb2.QuotaUse)
_ROLES: Final = EnumCodec(Role, access_pb2.Role.DESCRIPTOR)
_PRIORITIES: Final = EnumCodec(Priority, rag_pb2.Priority.DESCRIPTOR)


def audit_entry_to_message(entry: AuditEntry) -> admin_pb2.AuditEvent:
    message = _EVENT.to_message(entry.event)
    message.number = entry.number
    message.at.FromDatetime(entry.at)
    return message


def audit_entry_from_message(message: admin_pb2.AuditEvent) -> AuditEntry:
    return AuditEntry(message.number, moment(message.at), _EVENT.from_message(message))


def usage_to_message(report: UsageReport) -> admin_pb2.GetUsageResponse:
    """Returns the usage of clients as a message."""
    messages = [(client.client, _USAGE.to_message(client)) for client in report.clients]
    return admin_pb2.GetUsageResponse(
        since=timestamp(report.since),
        clients=[message for name, message in messages if name is not None],
        others=next((message for name, message in messages if name is None), None),
        quotas=map(_QUOTA.to_message, report.quotas),
    )


def usage_from_message(message: admin_pb2.GetUsageResponse) -> UsageReport:
    others = [message.others] if message.HasField("others") else []
    clients = tuple(_USAGE.from_message(client) for client in (*message.clients, *others))
    return UsageReport(moment(message.since), clients, tuple(map(_QUOTA.from_message, message.quotas)))


def identity_to_message(identity: Identity) -> access_pb2.WhoAmIResponse:
    """Returns a caller's identity as a message."""
    return access_pb2.WhoAmIResponse(
        name=identity.name,
        roles=[_ROLES.to_number(role) for role in Role if role in identity.roles],
        every_collection=identity.collections is None,
        collections=sorted(identity.collections or ()),
        priority_max=_PRIORITIES.to_number(identity.priority_ceiling),
    )


def identity_from_message(message: access_pb2.WhoAmIResponse) -> Identity:
    """Returns a caller's identity, without roles that this version does not know."""
    roles = (_ROLES.get(number) for number in message.roles)
    ceiling = _PRIORITIES.get(message.priority_max)
    return Identity(
        name=message.name,
        roles=frozenset(role for role in roles if role is not None),
        collections=None if message.every_collection else frozenset(message.collections),
        priority_ceiling=Priority.INTERACTIVE if ceiling is None else ceiling,
    )
