"""The canonical status code of every error. A transport maps codes to its own (gRPC status, HTTP status)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from edge_rag import errors


class Code(Enum):
    """Canonical status codes, named as in gRPC (google.rpc.Code)."""

    OK = auto()
    CANCELLED = auto()
    INVALID_ARGUMENT = auto()
    DEADLINE_EXCEEDED = auto()
    NOT_FOUND = auto()
    ALREADY_EXISTS = auto()
    PERMISSION_DENIED = auto()
    RESOURCE_EXHAUSTED = auto()
    FAILED_PRECONDITION = auto()
    ABORTED = auto()
    OUT_OF_RANGE = auto()
    INTERNAL = auto()
    UNAVAILABLE = auto()
    DATA_LOSS = auto()
    UNAUTHENTICATED = auto()


CODES: Final[dict[type[errors.EdgeRagError], Code]] = {
    errors.EdgeRagError: Code.INTERNAL,
    errors.InvalidRequest: Code.INVALID_ARGUMENT,
    errors.UndecodableMessage: Code.INVALID_ARGUMENT,
    errors.NotFound: Code.NOT_FOUND,
    errors.CollectionNotFound: Code.NOT_FOUND,
    errors.DocumentNotFound: Code.NOT_FOUND,
    errors.OriginalNotKept: Code.NOT_FOUND,
    errors.PageUnavailable: Code.NOT_FOUND,
    errors.JobNotFound: Code.NOT_FOUND,
    errors.QuestionNotFound: Code.NOT_FOUND,
    errors.FileNotFound: Code.NOT_FOUND,
    errors.FeedbackNotFound: Code.NOT_FOUND,
    errors.ModelNotFound: Code.NOT_FOUND,
    errors.TokenNotFound: Code.NOT_FOUND,
    errors.ValueMissing: Code.NOT_FOUND,
    errors.Unauthenticated: Code.UNAUTHENTICATED,
    errors.PermissionDenied: Code.PERMISSION_DENIED,
    errors.CollectionExists: Code.ALREADY_EXISTS,
    errors.TokenExists: Code.ALREADY_EXISTS,
    errors.ConfirmationNeeded: Code.FAILED_PRECONDITION,
    errors.JobClosed: Code.FAILED_PRECONDITION,
    errors.FileIncomplete: Code.FAILED_PRECONDITION,
    errors.RequestTooLarge: Code.FAILED_PRECONDITION,
    errors.Overloaded: Code.RESOURCE_EXHAUSTED,
    errors.QuotaExceeded: Code.RESOURCE_EXHAUSTED,
    errors.MemoryPressure: Code.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: Code.DEADLINE_EXCEEDED,
    errors.CallTimeout: Code.DEADLINE_EXCEEDED,
    errors.AnswerTruncated: Code.OUT_OF_RANGE,
    errors.SlowConsumer: Code.ABORTED,
    errors.RequestCancelled: Code.CANCELLED,
    errors.NotReady: Code.UNAVAILABLE,
    errors.RemoteFailed: Code.UNAVAILABLE,
    errors.RemoteIncompatible: Code.UNAVAILABLE,
    errors.DocumentRejected: Code.INVALID_ARGUMENT,
    errors.UnsupportedFormat: Code.INVALID_ARGUMENT,
    errors.EncryptedDocument: Code.INVALID_ARGUMENT,
    errors.BrokenDocument: Code.INVALID_ARGUMENT,
    errors.EmptyDocument: Code.INVALID_ARGUMENT,
    errors.DocumentTooLarge: Code.INVALID_ARGUMENT,
    errors.AccessError: Code.UNAVAILABLE,
    errors.DiscoveryUnavailable: Code.UNAVAILABLE,
    errors.ConfigurationError: Code.FAILED_PRECONDITION,
    errors.ProviderUnavailable: Code.FAILED_PRECONDITION,
    errors.ModelError: Code.INTERNAL,
    errors.ModelFolderInvalid: Code.FAILED_PRECONDITION,
    errors.ModelNotLowerable: Code.FAILED_PRECONDITION,
    errors.ModelNotAdded: Code.FAILED_PRECONDITION,
    errors.ModelNeeded: Code.FAILED_PRECONDITION,
    errors.GeneratorMissing: Code.FAILED_PRECONDITION,
    errors.InferenceFailed: Code.INTERNAL,
    errors.StorageError: Code.INTERNAL,
    errors.DataDirectoryInUse: Code.FAILED_PRECONDITION,
    errors.DataDirectoryNotPrivate: Code.FAILED_PRECONDITION,
    errors.StorageFull: Code.RESOURCE_EXHAUSTED,
    errors.StorageCorrupt: Code.DATA_LOSS,
    errors.StorageReadOnly: Code.FAILED_PRECONDITION,
    errors.BackupInvalid: Code.FAILED_PRECONDITION,
}
