"""The blocking client."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Collection as Names
from contextlib import closing
from itertools import chain
from types import TracebackType
from typing import BinaryIO, TypeVar, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from edge_rag.api.v1 import (
    access_pb2,
    access_pb2_grpc,
    admin_pb2,
    admin_pb2_grpc,
    collections_pb2,
    collections_pb2_grpc,
    documents_pb2,
    documents_pb2_grpc,
    rag_pb2,
    rag_pb2_grpc,
)
from edge_rag.client import access_replies, admin_replies, job_replies, replies, requests
from edge_rag.client.channel import (
    AnswerCall,
    BackupCall,
    DecisionsCall,
    HealthCall,
    IngestCall,
    WatchCall,
    open_channel,
    server_address,
)
from edge_rag.client.collection_messages import collection_info, settings_message, update_request
from edge_rag.client.credentials import Credentials, credentials_for
from edge_rag.client.failures import CallStatus, ClientError, client_error, unreadable_reply
from edge_rag.client.metadata_messages import write_metadata
from edge_rag.client.requests import AskOptions, SearchOptions, sendable
from edge_rag.client.retry import RetryPolicy
from edge_rag.client.upload import Cancellable, OutgoingDocument, Upload, Uploads
from edge_rag.client.values import (
    AskEvent,
    DecisionsMissed,
    Health,
    JobEntry,
    JobProgress,
    SearchReply,
    StoredDocument,
    UsageReport,
)
from edge_rag.core.answer import Finished
from edge_rag.core.collection import CollectionInfo, CollectionSettings
from edge_rag.core.decision import AuditEntry
from edge_rag.core.document import DocumentInfo, IngestOutcome
from edge_rag.core.identity import Identity
from edge_rag.core.jobs import Job
from edge_rag.core.status import DaemonStatus, IndexInUse, ModelInUse
from edge_rag.core.vector_home import HomeKind

_HOMES = {HomeKind.FAISS: admin_pb2.INDEX_HOME_FAISS, HomeKind.MILVUS: admin_pb2.INDEX_HOME_MILVUS}
_HEALTH = {
    health_pb2.HealthCheckResponse.SERVING: Health.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING: Health.NOT_SERVING,
}

T = TypeVar("T")


class Client:
    """A connection to one daemon. May be used from several threads at once.

    Args:
        address: HOST:PORT or unix:PATH; None takes EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: For a server with TLS; None takes what the environment names or ``edge-rag connect`` kept for the
            address, and calls without TLS where there is nothing.

    Raises:
        ClientError: INVALID_ARGUMENT, the address is of neither form, or a file of credentials cannot be read.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = server_address(address)
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._channel = open_channel(self.address, credentials or credentials_for(self.address))
        self._rag = rag_pb2_grpc.RagStub(self._channel)
        self._documents = documents_pb2_grpc.DocumentsStub(self._channel)
        self._access = access_pb2_grpc.AccessStub(self._channel)
        self._collections = collections_pb2_grpc.CollectionsStub(self._channel)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels every call under way and closes the connection."""
        self._channel.close()

    def ask(self, question: str, options: AskOptions | None = None) -> Iterator[AskEvent]:
        """Asks a question.

        Args:
            question: The question.
            options: How it is to be answered.

        Yields:
            ``PassagesReceived`` first, then ``TextDelta``, ``Citation`` and ``Unsupported`` as they come, ``Finished``
            last. Closing the iterator early cancels the call.

        Raises:
            ClientError: The call failed; events already yielded stand.
        """
        request = requests.ask_request(question, options or AskOptions())
        first, rest = self._repeat(lambda timeout_s: self._start_answer(request, timeout_s))
        try:
            event: AskEvent | None = None
            for message in chain((first,), rest):
                event = replies.ask_event(message)
                if event is not None:
                    yield event
            if not isinstance(event, Finished):
                raise unreadable_reply("the answer ended without its last message")
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure
        finally:
            rest.cancel()

    def search(self, query: str, options: SearchOptions | None = None) -> SearchReply:
        """Finds passages.

        Raises:
            ClientError: The call failed.
        """
        request = requests.search_request(query, options or SearchOptions())
        return replies.search_reply(self._repeat(lambda timeout_s: self._rag.Search(request, timeout=timeout_s)))

    def ingest(
        self,
        name: str,
        open_content: Callable[[], BinaryIO],
        *,
        collection: str = "default",
        media_type: str = "",
        metadata: Mapping[str, object] | None = None,
    ) -> IngestOutcome:
        """Hands one document over.

        Args:
            name: Name of the document, unique within its collection.
            open_content: Opens its bytes, seekable; called once an attempt.
            collection: Where it goes.
            media_type: What it is; empty to have it found out.
            metadata: Texts, numbers, truth values, dates and lists of texts by key; win over what the document says of
                itself.

        Returns:
            What became of it.

        Raises:
            ClientError: The call failed; the document was not taken.
            OSError: The content could not be opened or read to its end; the document was not taken.
        """
        header = documents_pb2.IngestRequest.Header(
            collection=sendable("collection", collection),
            name=sendable("name", name),
            media_type=media_type,
            metadata=write_metadata(metadata or {}),
        )

        def attempt(timeout_s: float | None) -> documents_pb2.IngestResponse:
            with closing(open_content()) as content:
                upload = Upload(header, content)
                call = self._documents.Ingest.future(iter(upload), timeout=timeout_s)
                upload.bind(call)
                try:
                    return call.result()
                except (grpc.RpcError, grpc.FutureCancelledError):
                    if upload.error is not None:
                        raise upload.error from None
                    raise
                finally:
                    cast(Cancellable, call).cancel()

        return replies.ingest_outcome(self._repeat(attempt))

    def start_ingest(
        self, documents: Iterable[OutgoingDocument], *, collection: str = "default"
    ) -> Iterator[Job | JobEntry]:
        """Has documents accepted and stored afterwards, as a job.

        Args:
            documents: What to hand over; taken one by one, each opened when its turn comes and closed again.
            collection: Where they go.

        Yields:
            The job, then each document once it is accepted, which is for good, or rejected. Not repeated: what was
            accepted before a failure stands.

        Raises:
            ClientError: The call failed.
            OSError: A document could not be opened or read to its end; it and the rest were not handed over.
        """
        sending = Uploads(documents, sendable("collection", collection))
        call = cast(IngestCall, self._documents.StartIngest(iter(sending), timeout=self._timeout_s))
        sending.bind(call)
        try:
            for message in call:
                event = job_replies.ingest_event(message)
                if event is not None:
                    yield event
        except grpc.RpcError as failure:
            if sending.error is not None:
                raise sending.error from None
            raise client_error(failure, self.address) from failure
        finally:
            call.cancel()

    def watch_job(self, job_id: str, cursor: int = 0) -> Iterator[JobProgress]:
        """Tells what becomes of a job's documents, as it happens; ends with the job.

        A connection that is lost, or a daemon that is restarted, is waited for as the retry policy says, and the job
        followed on from where it was.

        Args:
            job_id: The job.
            cursor: Where to go on from; 0 begins at the beginning.

        Raises:
            ClientError: The call failed.
        """
        failures, waited_s = 0, 0.0
        while True:
            request = documents_pb2.WatchJobRequest(job_id=sendable("job_id", job_id), cursor=cursor)
            call = cast(WatchCall, self._documents.WatchJob(request, timeout=self._timeout_s))
            try:
                for message in call:
                    failures, waited_s, cursor = 0, 0.0, message.cursor
                    yield job_replies.progress(message)
                return
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random())
                if delay_s is None:
                    raise error from failure
            finally:
                call.cancel()
            time.sleep(delay_s)
            waited_s += delay_s

    def jobs(self, limit: int | None = None) -> tuple[Job, ...]:
        """Returns the latest jobs, the newest first.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.ListJobsRequest(limit=limit)
        reply = self._repeat(lambda timeout_s: self._documents.ListJobs(request, timeout=timeout_s))
        return tuple(job_replies.job(job) for job in reply.jobs)

    def cancel_job(self, job_id: str) -> Job:
        """Ends a job and returns it; what it has stored stays.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.CancelJobRequest(job_id=sendable("job_id", job_id))
        reply = self._repeat(lambda timeout_s: self._documents.CancelJob(request, timeout=timeout_s))
        return job_replies.job(reply.job)

    def document(self, document: str, *, collection: str = "default") -> StoredDocument:
        """Returns a document, by id or by name, with its stored text.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.GetDocumentRequest(
            collection=sendable("collection", collection), document=sendable("document", document)
        )
        return replies.stored_document(self._repeat(lambda timeout_s: self._documents.Get(request, timeout=timeout_s)))

    def documents(self, *, collection: str = "default") -> Iterator[DocumentInfo]:
        """Yields the records of a collection's documents, in order of id.

        Raises:
            ClientError: A call failed.
        """
        request = documents_pb2.ListDocumentsRequest(collection=sendable("collection", collection), page_size=500)
        while True:
            reply = self._repeat(lambda timeout_s: self._documents.List(request, timeout=timeout_s))
            yield from (replies.document_info(document) for document in reply.documents)
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    def delete(self, document: str, *, collection: str = "default") -> DocumentInfo:
        """Removes a document, by id or by name, and returns its record.

        Raises:
            ClientError: The call failed.
        """
        request = documents_pb2.DeleteDocumentRequest(
            collection=sendable("collection", collection), document=sendable("document", document)
        )
        reply = self._repeat(lambda timeout_s: self._documents.Delete(request, timeout=timeout_s))
        return replies.document_info(reply.document)

    def create_collection(self, name: str, settings: CollectionSettings | None = None) -> CollectionInfo:
        """Makes an empty collection, which stays until it is deleted. Not repeated.

        Raises:
            ClientError: The call failed; ALREADY_EXISTS, there is one of that name.
        """
        request = collections_pb2.CreateCollectionRequest(
            name=sendable("name", name), settings=settings_message(settings or CollectionSettings())
        )
        try:
            return collection_info(self._collections.Create(request, timeout=self._timeout_s).collection)
        except grpc.RpcError as failure:
            raise client_error(failure, self.address) from failure

    def collection(self, name: str) -> CollectionInfo:
        """Returns a collection.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.GetCollectionRequest(name=sendable("name", name))
        reply = self._repeat(lambda timeout_s: self._collections.Get(request, timeout=timeout_s))
        return collection_info(reply.collection)

    def collections(self) -> tuple[CollectionInfo, ...]:
        """Returns all collections, by name.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.ListCollectionsRequest()
        reply = self._repeat(lambda timeout_s: self._collections.List(request, timeout=timeout_s))
        return tuple(collection_info(collection) for collection in reply.collections)

    def update_collection(self, name: str, settings: CollectionSettings, fields: Names[str]) -> CollectionInfo:
        """Changes a collection's settings.

        Args:
            name: Its name.
            settings: Has the new values.
            fields: Which fields of ``CollectionSettings`` to take over.

        Raises:
            ClientError: The call failed.
        """
        request = update_request(name, settings, fields)
        reply = self._repeat(lambda timeout_s: self._collections.Update(request, timeout=timeout_s))
        return collection_info(reply.collection)

    def delete_collection(self, name: str) -> CollectionInfo:
        """Removes a collection with all that is in it, and returns what it was.

        Raises:
            ClientError: The call failed.
        """
        request = collections_pb2.DeleteCollectionRequest(name=sendable("name", name))
        reply = self._repeat(lambda timeout_s: self._collections.Delete(request, timeout=timeout_s))
        return collection_info(reply.collection)

    def status(self) -> DaemonStatus:
        """Returns what the daemon is doing.

        Raises:
            ClientError: The call failed.
        """
        request = admin_pb2.GetStatusRequest()
        reply = self._repeat(lambda timeout_s: self._admin.GetStatus(request, timeout=timeout_s))
        return admin_replies.daemon_status(reply)

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
            return admin_replies.model_in_use(self._admin.UseModel(request, timeout=self._timeout_s).model)
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
            return admin_replies.index_in_use(self._admin.MoveIndex(request, timeout=self._timeout_s).index)
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

    def wait_until_serving(self, timeout_s: float) -> None:
        """Waits until the health service says SERVING; a daemon that is not there yet is waited for.

        Raises:
            ClientError: DEADLINE_EXCEEDED, it did not within ``timeout_s`` seconds; or UNIMPLEMENTED.
        """
        deadline = time.monotonic() + timeout_s
        last = "no daemon answers"
        while (left := deadline - time.monotonic()) > 0:
            watch = cast(
                HealthCall, self._health.Watch(health_pb2.HealthCheckRequest(), timeout=left, wait_for_ready=True)
            )
            try:
                for reply in watch:
                    health = _HEALTH.get(reply.status, Health.UNKNOWN)
                    if health is Health.SERVING:
                        return
                    last = f"the daemon is {health.value.replace('_', ' ')}"
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                if error.status not in (CallStatus.UNAVAILABLE, CallStatus.DEADLINE_EXCEEDED):
                    raise error from failure
            finally:
                watch.cancel()
        raise ClientError(
            CallStatus.DEADLINE_EXCEEDED,
            f"waited {timeout_s:g} s for {self.address}: {last}",
            advice="The daemon's log says what it is doing",
        )

    def _start_answer(
        self, request: rag_pb2.AskRequest, timeout_s: float | None
    ) -> tuple[rag_pb2.AskResponse, AnswerCall]:
        call = cast(AnswerCall, self._rag.Ask(request, timeout=timeout_s))
        try:
            return next(call), call
        except StopIteration:
            raise unreadable_reply("the answer ended without a message") from None
        except BaseException:
            call.cancel()
            raise

    def _repeat(self, attempt: Callable[[float | None], T]) -> T:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        waited_s, failures = 0.0, 0
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return attempt(left_s)
            except grpc.FutureCancelledError as failure:
                raise ClientError(CallStatus.CANCELLED, "the call was cancelled") from failure
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random())
                if delay_s is None or (left_s is not None and delay_s >= left_s):
                    raise error from failure
            time.sleep(delay_s)
            waited_s += delay_s
