"""Looking into the daemon, and running it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, cast

import grpc

from edge_rag.api.v1 import (
    access_pb2,
    admin_pb2,
)
from edge_rag.client import access_replies, admin_replies, status_replies
from edge_rag.client.channel import (
    BackupCall,
    DecisionsCall,
    StatusCall,
)
from edge_rag.client.connection import Connection
from edge_rag.client.failures import client_error, unreadable_reply
from edge_rag.client.requests import sendable
from edge_rag.client.values import (
    DecisionsMissed,
    UsageReport,
)
from edge_rag.core.decision import AuditEntry
from edge_rag.core.identity import Identity
from edge_rag.core.status import DaemonStatus, IndexInUse, ModelInUse
from edge_rag.core.vector_home import HomeKind

_HOMES = {HomeKind.FAISS: admin_pb2.INDEX_HOME_FAISS, HomeKind.MILVUS: admin_pb2.INDEX_HOME_MILVUS}


class AdminCalls(Connection):
    """Asks what the daemon is doing, and changes it."""

    def status(self) -> DaemonStatus:
        """Returns what the daemon is doing.

        Raises:
            ClientError: The call failed.
        """
        request = admin_pb2.GetStatusRequest()
        reply = self._repeat(lambda timeout_s: self._admin.GetStatus(request, timeout=timeout_s))
        return status_replies.daemon_status(reply)

    def watch_status(self, interval_s: float = 1.0) -> Iterator[DaemonStatus]:
        """Yields what the daemon is doing, again and again, until it shuts down.

        Args:
            interval_s: Time between two reports, seconds, 0.1 to 3600.

        Raises:
            ClientError: The call failed; it is not repeated.
        """
        request = admin_pb2.WatchStatusRequest(interval_seconds=interval_s)
        call = cast(StatusCall, self._admin.WatchStatus(request, timeout=self._timeout_s))
        try:
            for message in call:
                yield status_replies.daemon_status(message.status)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure
        finally:
            call.cancel()

    def whoami(self) -> Identity:
        """Returns who the daemon takes this client for.

        Raises:
            ClientError: The call failed.
        """
        request = access_pb2.WhoAmIRequest()
        return access_replies.identity(self._repeat(lambda timeout_s: self._access.WhoAmI(request, timeout=timeout_s)))

    def usage(self) -> UsageReport:
        """Returns what each client used of the generator.

        Raises:
            ClientError: The call failed.
        """
        request = admin_pb2.GetUsageRequest()
        return admin_replies.usage_report(
            self._repeat(lambda timeout_s: self._admin.GetUsage(request, timeout=timeout_s))
        )

    def use_model(self, role: str, name: str) -> ModelInUse:
        """Puts another model in a role of the running daemon; returns when the old one is gone. Not repeated.

        Raises:
            ClientError: The call failed; where the daemon refused, the old model is still in use.
        """
        request = admin_pb2.UseModelRequest(role=role, name=name)
        try:
            return status_replies.model_in_use(self._admin.UseModel(request, timeout=self._timeout_s).model)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure

    def backup(self, target: BinaryIO) -> int:
        """Writes a backup of all documents.

        Args:
            target: Where to; not synced.

        Returns:
            Number of bytes, all of them as the daemon sent them.

        Raises:
            ClientError: The call failed; what was written is worth nothing.
            OSError: It could not be written.
        """
        call = cast(BackupCall, self._admin.Backup(admin_pb2.BackupRequest(), timeout=self._timeout_s))
        digest, size = hashlib.sha256(), 0
        try:
            for message in call:
                if message.HasField("summary"):
                    if (message.summary.size_bytes, message.summary.sha256) != (size, digest.hexdigest()):
                        raise unreadable_reply("the backup did not come as it was sent")
                    return size
                digest.update(message.content)
                size += len(message.content)
                target.write(message.content)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure
        finally:
            call.cancel()
        raise unreadable_reply("the backup ended without its summary")

    def move_index(self, collection: str, home: HomeKind) -> IndexInUse:
        """Has a collection's vectors indexed elsewhere; returns how it is searched then. Not repeated.

        Raises:
            ClientError: The call failed; where the daemon refused, the collection is where it was.
        """
        request = admin_pb2.MoveIndexRequest(collection=collection, home=_HOMES[home])
        try:
            return status_replies.index_in_use(self._admin.MoveIndex(request, timeout=self._timeout_s).index)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure

    def decisions(
        self, request_id: str = "", *, follow: bool = False, limit: int | None = None
    ) -> Iterator[AuditEntry | DecisionsMissed]:
        """Reads the audit trail.

        Args:
            request_id: About whom; empty for all.
            follow: Whether to go on with decisions as they are made.
            limit: Most decisions of those already made, the latest ones; None for all.

        Yields:
            Decisions in the order in which they were made, and how many were lost where some were. Closing the iterator
            early ends the call.

        Raises:
            ClientError: The call failed; it is not repeated.
        """
        request = admin_pb2.ListDecisionsRequest(
            request_id=sendable("request_id", request_id), follow=follow, limit=limit
        )
        call = cast(DecisionsCall, self._admin.ListDecisions(request, timeout=self._timeout_s))
        try:
            for message in call:
                if message.missed:
                    yield DecisionsMissed(message.missed)
                if message.HasField("decision"):
                    yield admin_replies.audit_entry(message.decision)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure
        finally:
            call.cancel()
