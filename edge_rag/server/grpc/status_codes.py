"""Errors to gRPC status: one table."""

from __future__ import annotations

from typing import Final

import grpc

from edge_rag import errors

STATUS: Final[dict[type[errors.EdgeRagError], grpc.StatusCode]] = {
    errors.EdgeRagError: grpc.StatusCode.INTERNAL,
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.CollectionNotFound: grpc.StatusCode.NOT_FOUND,
    errors.DocumentNotFound: grpc.StatusCode.NOT_FOUND,
    errors.JobNotFound: grpc.StatusCode.NOT_FOUND,
    errors.ModelNotFound: grpc.StatusCode.NOT_FOUND,
    errors.TokenNotFound: grpc.StatusCode.NOT_FOUND,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.CollectionExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.JobClosed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RequestTooLarge: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.MemoryPressure: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.CallTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.SlowConsumer: grpc.StatusCode.ABORTED,
    errors.RequestCancelled: grpc.StatusCode.CANCELLED,
    errors.NotReady: grpc.StatusCode.UNAVAILABLE,
    errors.RemoteFailed: grpc.StatusCode.UNAVAILABLE,
    errors.RemoteIncompatible: grpc.StatusCode.UNAVAILABLE,
    errors.DocumentRejected: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnsupportedFormat: grpc.StatusCode.INVALID_ARGUMENT,
    errors.EncryptedDocument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BrokenDocument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.EmptyDocument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DocumentTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.AccessError: grpc.StatusCode.UNAVAILABLE,
    errors.DiscoveryUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.ConfigurationError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ProviderUnavailable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ModelError: grpc.StatusCode.INTERNAL,
    errors.ModelFolderInvalid: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ModelNotLowerable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ModelNotAdded: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ModelNeeded: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InferenceFailed: grpc.StatusCode.INTERNAL,
    errors.StorageError: grpc.StatusCode.INTERNAL,
    errors.DataDirectoryInUse: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageCorrupt: grpc.StatusCode.DATA_LOSS,
    errors.BackupInvalid: grpc.StatusCode.FAILED_PRECONDITION,
}


def trailers(error: errors.EdgeRagError) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata of an error: when to come back, where that is known (gRFC A6)."""
    if isinstance(error, errors.Overloaded):
        return (("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1000))),)
    return ()
