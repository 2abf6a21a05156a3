"""The RPCs that the client calls, each with the types that go over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import access_pb2, admin_pb2, collections_pb2, documents_pb2, rag_pb2

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Reply]):
    """An RPC.

    Attributes:
        file: Where it is declared.
        service: Its service, without the package.
        name: Its name in the service.
        request: Type of a request.
        reply: Type of a reply.
    """

    file: FileDescriptor
    service: str
    name: str
    request: type[Request]
    reply: type[Reply]

    @property
    def descriptor(self) -> MethodDescriptor:
        """What the proto says of it."""
        return self.file.services_by_name[self.service].methods_by_name[self.name]

    @property
    def path(self) -> str:
        """What gRPC calls it."""
        return f"/{self.file.package}.{self.service}/{self.name}"

    @property
    def takes_many(self) -> bool:
        """Whether requests are a stream."""
        return bool(self.descriptor.client_streaming)

    @property
    def gives_many(self) -> bool:
        """Whether replies are a stream."""
        return bool(self.descriptor.server_streaming)


_RAG: Final = rag_pb2.DESCRIPTOR
_DOCUMENTS: Final = documents_pb2.DESCRIPTOR
_COLLECTIONS: Final = collections_pb2.DESCRIPTOR
_ADMIN: Final = admin_pb2.DESCRIPTOR

ASK: Final = Method(_RAG, "Rag", "Ask", rag_pb2.AskRequest, rag_pb2.AskResponse)
SEARCH: Final = Method(_RAG, "Rag", "Search", rag_pb2.SearchRequest, rag_pb2.SearchResponse)

INGEST: Final = Method(_DOCUMENTS, "Documents", "Ingest", documents_pb2.IngestRequest, documents_pb2.IngestResponse)
START_INGEST: Final = Method(
    _DOCUMENTS, "Documents", "StartIngest", documents_pb2.IngestRequest, documents_pb2.StartIngestResponse
)
WATCH_JOB: Final = Method(
    _DOCUMENTS, "Documents", "WatchJob", documents_pb2.WatchJobRequest, documents_pb2.WatchJobResponse
)
LIST_JOBS: Final = Method(
    _DOCUMENTS, "Documents", "ListJobs", documents_pb2.ListJobsRequest, documents_pb2.ListJobsResponse
)
CANCEL_JOB: Final = Method(
    _DOCUMENTS, "Documents", "CancelJob", documents_pb2.CancelJobRequest, documents_pb2.CancelJobResponse
)
GET_DOCUMENT: Final = Method(
    _DOCUMENTS, "Documents", "Get", documents_pb2.GetDocumentRequest, documents_pb2.GetDocumentResponse
)
LIST_DOCUMENTS: Final = Method(
    _DOCUMENTS, "Documents", "List", documents_pb2.ListDocumentsRequest, documents_pb2.ListDocumentsResponse
)
DELETE_DOCUMENT: Final = Method(
    _DOCUMENTS, "Documents", "Delete", documents_pb2.DeleteDocumentRequest, documents_pb2.DeleteDocumentResponse
)

CREATE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Create",
    collections_pb2.CreateCollectionRequest,
    collections_pb2.CreateCollectionResponse,
)
GET_COLLECTION: Final = Method(
    _COLLECTIONS, "Collections", "Get", collections_pb2.GetCollectionRequest, collections_pb2.GetCollectionResponse
)
LIST_COLLECTIONS: Final = Method(
    _COLLECTIONS, "Collections", "List", collections_pb2.ListCollectionsRequest, collections_pb2.ListCollectionsResponse
)
UPDATE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Update",
    collections_pb2.UpdateCollectionRequest,
    collections_pb2.UpdateCollectionResponse,
)
DELETE_COLLECTION: Final = Method(
    _COLLECTIONS,
    "Collections",
    "Delete",
    collections_pb2.DeleteCollectionRequest,
    collections_pb2.DeleteCollectionResponse,
)

GET_STATUS: Final = Method(_ADMIN, "Admin", "GetStatus", admin_pb2.GetStatusRequest, admin_pb2.GetStatusResponse)
WATCH_STATUS: Final = Method(
    _ADMIN, "Admin", "WatchStatus", admin_pb2.WatchStatusRequest, admin_pb2.WatchStatusResponse
)
GET_USAGE: Final = Method(_ADMIN, "Admin", "GetUsage", admin_pb2.GetUsageRequest, admin_pb2.GetUsageResponse)
LIST_DECISIONS: Final = Method(
    _ADMIN, "Admin", "ListDecisions", admin_pb2.ListDecisionsRequest, admin_pb2.ListDecisionsResponse
)
USE_MODEL: Final = Method(_ADMIN, "Admin", "UseModel", admin_pb2.UseModelRequest, admin_pb2.UseModelResponse)
MOVE_INDEX: Final = Method(_ADMIN, "Admin", "MoveIndex", admin_pb2.MoveIndexRequest, admin_pb2.MoveIndexResponse)
BACKUP: Final = Method(_ADMIN, "Admin", "Backup", admin_pb2.BackupRequest, admin_pb2.BackupResponse)

WHO_AM_I: Final = Method(access_pb2.DESCRIPTOR, "Access", "WhoAmI", access_pb2.WhoAmIRequest, access_pb2.WhoAmIResponse)

WATCH_HEALTH: Final = Method(
    health_pb2.DESCRIPTOR, "Health", "Watch", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
)
