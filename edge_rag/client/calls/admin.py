"""Status, usage, audit log, models, indexes and backups."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import BinaryIO, Final

from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import access_pb2, admin_pb2
from edge_rag.client.connection import AsyncConnection
from edge_rag.client.errors import (
    CallStatus,
    ClientError,
    DeadlineExceeded,
    Unavailable,
    invalid_argument,
    unreadable_reply,
)
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.identity import Identity
from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.core.monitoring.metrics import UsageReport
from edge_rag.core.monitoring.status import DaemonStatus, IndexInUse, ModelInUse
from edge_rag.wire.admin import audit_entry_from_message, identity_from_message, usage_from_message
from edge_rag.wire.requests import move_index_to_message, sendable
from edge_rag.wire.status import index_from_message, model_from_message, status_from_message
from edge_rag.wire.types import EntriesDropped, Health

_HEALTH: Final = {
    health_pb2.HealthCheckResponse.SERVING: Health.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING: Health.NOT_SERVING,
}


class AsyncAdminCalls(AsyncConnection):
    """Calls of the ``Admin``, ``Access`` and health services."""

    async def wait_until_serving(self, timeout_s: float) -> None:
        """Waits until the daemon serves, also while it is not running yet.

        Example:
            >>> await client.wait_until_serving(60)
        """
        deadline = time.monotonic() + timeout_s
        last = "no daemon answers"
        watch = self._transport.stubs.health.Watch
        while (left_s := deadline - time.monotonic()) > 0:
            request = health_pb2.HealthCheckRequest()
            try:
                async with self._transport.stream(watch, request, left_s, wait_for_ready=True) as replies:
                    async for reply in replies:
                        health = _HEALTH.get(reply.status, Health.UNKNOWN)
                        if health is Health.SERVING:
                            return
                        last = f"the daemon is {health.value.replace('_', ' ')}"
            except (Unavailable, DeadlineExceeded):
                continue
        raise ClientError(
            CallStatus.DEADLINE_EXCEEDED,
            f"waited {timeout_s:g} s for {self.address}: {last}",
            advice="The daemon's log has the details",
        )

    async def status(self) -> DaemonStatus:
        """Returns the daemon's report on itself.

        Example:
            >>> status = await client.status()
            >>> print(status.engine.slots_busy)
        """
        request = admin_pb2.GetStatusRequest()
        return status_from_message(await self._call(self._transport.stubs.admin.GetStatus, request))

    async def watch_status(self, interval_s: float = 1.0) -> AsyncGenerator[DaemonStatus, None]:
        """Yields the daemon's report on itself at an interval, until it shuts down. The call is not repeated.

        Args:
            interval_s: Time between two reports, seconds, 0.1 to 3600.

        Example:
            >>> async for status in client.watch_status(interval_s=0.5):
            ...     print(status.engine.generated_per_s)
            ...     break
        """
        request = admin_pb2.WatchStatusRequest(interval_seconds=interval_s)
        rpc = self._transport.stubs.admin.WatchStatus
        async with self._transport.stream(rpc, request, self._timeout_s) as replies:
            async for message in replies:
                yield status_from_message(message.status)

    async def whoami(self) -> Identity:
        """Returns the identity that this client's credentials stand for.

        Example:
            >>> identity = await client.whoami()
            >>> print(identity.name)
        """
        request = access_pb2.WhoAmIRequest()
        return identity_from_message(await self._call(self._transport.stubs.access.WhoAmI, request))

    async def usage(self) -> UsageReport:
        """Returns the usage of the generator by client, since the daemon was started.

        Example:
            >>> report = await client.usage()
            >>> for used in report.clients:
            ...     print(used.client, used.generated_tokens)
        """
        request = admin_pb2.GetUsageRequest()
        return usage_from_message(await self._call(self._transport.stubs.admin.GetUsage, request))

    async def use_model(self, role: str, name: str) -> ModelInUse:
        """Replaces a model of the running daemon. Returns when the old one is unloaded. The call is not repeated.

        Args:
            role: ``generator``.
            name: Name of the model in the daemon's model store.

        Raises:
            InvalidArgument: The model of this role cannot be replaced while the daemon runs.
            FailedPrecondition: The model was altered, or does not fit in memory beside the present one.
            ClientError: The call failed otherwise. Where the daemon refused, the old model stays in use.

        Example:
            >>> status = await client.status()
            >>> await client.use_model("generator", status.models[2].name)
        """
        request = admin_pb2.UseModelRequest(role=role, name=name)
        reply = await self._call(self._transport.stubs.admin.UseModel, request, repeat=False)
        return model_from_message(reply.model)

    async def move_index(self, collection: str, backend: BackendKind) -> IndexInUse:
        """Moves a collection's vectors to another index backend. The call is not repeated.

        Raises:
            FailedPrecondition: No Milvus is configured.
            ClientError: The call failed otherwise. Where the daemon refused, the index stays where it was.

        Example:
            >>> await client.move_index("default", BackendKind.FAISS)
        """
        request = move_index_to_message(collection, backend)
        reply = await self._call(self._transport.stubs.admin.MoveIndex, request, repeat=False)
        return index_from_message(reply.index)

    async def backup(self, target: BinaryIO) -> int:
        """Writes a backup of all documents. The call is not repeated.

        Args:
            target: The file to write to; it is not synced.

        Returns:
            Size of the backup, bytes. Its checksum was compared with the daemon's.

        Raises:
            ClientError: The call failed; the file is unusable.

        Example:
            >>> with open("monday.edge-rag", "wb") as target:
            ...     print(await client.backup(target), "bytes")
        """
        digest, size = hashlib.sha256(), 0
        summary: admin_pb2.BackupResponse.Summary | None = None
        rpc = self._transport.stubs.admin.Backup
        async with self._transport.stream(rpc, admin_pb2.BackupRequest(), self._timeout_s) as replies:
            async for message in replies:
                if message.HasField("summary"):
                    summary = message.summary
                else:
                    digest.update(message.content)
                    size += len(message.content)
                    await self._transport.run(partial(target.write, message.content))
        if summary is None:
            raise unreadable_reply("the backup ended without its summary")
        if (summary.size_bytes, summary.sha256) != (size, digest.hexdigest()):
            raise unreadable_reply("the backup differs from what was sent")
        return size

    async def audit_events(
        self, request_id: str = "", *, follow: bool = False, limit: int | None = None
    ) -> AsyncGenerator[AuditEntry | EntriesDropped, None]:
        """Reads the audit log. The call is not repeated.

        Args:
            request_id: The request whose entries to return; empty for all.
            follow: Whether to continue with new entries as they are recorded.
            limit: Most entries of those that are recorded already, the latest ones; None for all.

        Yields:
            Entries in order, and how many were dropped where some were. Closing the generator early ends the call.

        Example:
            >>> async for entry in client.audit_events(limit=10):
            ...     print(entry)
        """
        with invalid_argument():
            request = admin_pb2.ListAuditEventsRequest(
                request_id=sendable("request_id", request_id), follow=follow, limit=limit
            )
        rpc = self._transport.stubs.admin.ListAuditEvents
        async with self._transport.stream(rpc, request, self._timeout_s) as replies:
            async for message in replies:
                if message.dropped_entries:
                    yield EntriesDropped(message.dropped_entries)
                if message.HasField("event"):
                    yield audit_entry_from_message(message.event)
