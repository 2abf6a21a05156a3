"""Looking into the daemon, and running it."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import BinaryIO, Final

from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import access_pb2, admin_pb2
from edge_rag.client import access_replies, admin_replies, status_replies
from edge_rag.client.call_flow import (
    BACKUP,
    GET_STATUS,
    GET_USAGE,
    LIST_AUDIT_EVENTS,
    MOVE_INDEX,
    USE_MODEL,
    WATCH_HEALTH,
    WATCH_STATUS,
    WHO_AM_I,
    Begin,
    CallOptions,
    Flow,
    Streaming,
    Tell,
    Work,
    exchange,
    received,
    repeated,
)
from edge_rag.client.failures import CallStatus, ClientError, unreadable_reply
from edge_rag.client.requests import sendable
from edge_rag.client.values import DecisionsMissed, Health, UsageReport
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.identity import Identity
from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.core.monitoring.status import DaemonStatus, IndexInUse, ModelInUse

_HOMES: Final = {BackendKind.FAISS: admin_pb2.INDEX_BACKEND_FAISS, BackendKind.MILVUS: admin_pb2.INDEX_BACKEND_MILVUS}
_HEALTH: Final = {
    health_pb2.HealthCheckResponse.SERVING: Health.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING: Health.NOT_SERVING,
}


def wait_until_serving(terms: CallOptions, timeout_s: float) -> Flow[None]:
    """Waits until the health service says SERVING; a daemon that is not there yet is waited for.

    Raises:
        ClientError: DEADLINE_EXCEEDED, it did not within ``timeout_s`` seconds; or UNIMPLEMENTED.

    Example:
        >>> client.wait_until_serving(60)
    """
    deadline = terms.now() + timeout_s
    last = "no daemon answers"
    while (left_s := deadline - terms.now()) > 0:
        try:
            yield Begin(WATCH_HEALTH, health_pb2.HealthCheckRequest(), left_s, wait_for_ready=True)
            while (reply := (yield from received(WATCH_HEALTH))) is not None:
                health = _HEALTH.get(reply.status, Health.UNKNOWN)
                if health is Health.SERVING:
                    return
                last = f"the daemon is {health.value.replace('_', ' ')}"
        except ClientError as error:
            if error.status not in (CallStatus.UNAVAILABLE, CallStatus.DEADLINE_EXCEEDED):
                raise
    raise ClientError(
        CallStatus.DEADLINE_EXCEEDED,
        f"waited {timeout_s:g} s for {terms.address}: {last}",
        advice="The daemon's log says what it is doing",
    )


def status(terms: CallOptions) -> Flow[DaemonStatus]:
    """Returns what the daemon is doing.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print(client.status().engine.slots_busy)
    """
    return status_replies.daemon_status((yield from repeated(GET_STATUS, admin_pb2.GetStatusRequest, terms)))


def watch_status(terms: CallOptions, interval_s: float = 1.0) -> Streaming[DaemonStatus]:
    """Yields what the daemon is doing, again and again, until it shuts down.

    Args:
        interval_s: Time between two reports, seconds, 0.1 to 3600.

    Raises:
        ClientError: The call failed; it is not repeated.

    Example:
        >>> for status in client.watch_status(interval_s=0.5):
        ...     print(status.engine.generated_per_s)
        ...     break
    """
    yield Begin(WATCH_STATUS, admin_pb2.WatchStatusRequest(interval_seconds=interval_s), terms.timeout_s)
    while (message := (yield from received(WATCH_STATUS))) is not None:
        yield Tell(status_replies.daemon_status(message.status))


def whoami(terms: CallOptions) -> Flow[Identity]:
    """Returns who the daemon takes this client for.

    Raises:
        ClientError: The call failed.

    Example:
        >>> print(client.whoami().name)
    """
    return access_replies.identity((yield from repeated(WHO_AM_I, access_pb2.WhoAmIRequest, terms)))


def usage(terms: CallOptions) -> Flow[UsageReport]:
    """Returns what each client used of the generator.

    Raises:
        ClientError: The call failed.

    Example:
        >>> for used in client.usage().clients:
        ...     print(used.client, used.generated_tokens)
    """
    return admin_replies.usage_report((yield from repeated(GET_USAGE, admin_pb2.GetUsageRequest, terms)))


def use_model(terms: CallOptions, role: str, name: str) -> Flow[ModelInUse]:
    """Puts another model in a role of the running daemon; returns when the old one is gone. Not repeated.

    Raises:
        ClientError: The call failed; where the daemon refused, the old model is still in use.

    Example:
        >>> client.use_model("generator", client.status().models[2].name)
    """
    request = admin_pb2.UseModelRequest(role=role, name=name)
    return status_replies.model_in_use((yield from exchange(USE_MODEL, request, terms)).model)


def move_index(terms: CallOptions, collection: str, home: BackendKind) -> Flow[IndexInUse]:
    """Has a collection's vectors indexed elsewhere; returns how it is searched then. Not repeated.

    Raises:
        ClientError: The call failed; where the daemon refused, the collection is where it was.

    Example:
        >>> client.move_index("default", BackendKind.FAISS)
    """
    request = admin_pb2.MoveIndexRequest(collection=collection, backend=_HOMES[home])
    return status_replies.index_in_use((yield from exchange(MOVE_INDEX, request, terms)).index)


def backup(terms: CallOptions, target: BinaryIO) -> Flow[int]:
    """Writes a backup of all documents.

    Args:
        target: Where to; not synced.

    Returns:
        Number of bytes, all of them as the daemon sent them.

    Raises:
        ClientError: The call failed; what was written is worth nothing.
        OSError: It could not be written.

    Example:
        >>> with open("monday.edge-rag", "wb") as target:
        ...     print(client.backup(target), "bytes")
    """
    yield Begin(BACKUP, admin_pb2.BackupRequest(), terms.timeout_s)
    digest, size = hashlib.sha256(), 0
    summary: admin_pb2.BackupResponse.Summary | None = None
    while (message := (yield from received(BACKUP))) is not None:
        if message.HasField("summary"):
            summary = message.summary
        else:
            digest.update(message.content)
            size += len(message.content)
            yield Work(partial(target.write, message.content))
    if summary is None:
        raise unreadable_reply("the backup ended without its summary")
    if (summary.size_bytes, summary.sha256) != (size, digest.hexdigest()):
        raise unreadable_reply("the backup did not come as it was sent")
    return size


def decisions(
    terms: CallOptions, request_id: str = "", *, follow: bool = False, limit: int | None = None
) -> Streaming[AuditEntry | DecisionsMissed]:
    """Reads the audit trail.

    Args:
        request_id: About whom; empty for all.
        follow: Whether to go on with decisions as they are made.
        limit: Most decisions of those already made, the latest ones; None for all.

    Yields:
        Decisions in the order in which they were made, and how many were lost where some were. Closing the generator
        early ends the call.

    Raises:
        ClientError: The call failed; it is not repeated.

    Example:
        >>> for entry in client.decisions(limit=10):
        ...     print(entry)
    """
    request = admin_pb2.ListAuditEventsRequest(
        request_id=sendable("request_id", request_id), follow=follow, limit=limit
    )
    yield Begin(LIST_AUDIT_EVENTS, request, terms.timeout_s)
    while (message := (yield from received(LIST_AUDIT_EVENTS))) is not None:
        if message.dropped_entries:
            yield Tell(DecisionsMissed(message.dropped_entries))
        if message.HasField("event"):
            yield Tell(admin_replies.audit_entry(message.event))
