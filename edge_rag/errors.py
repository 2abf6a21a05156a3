"""The error tree.

EdgeRagError
├── InvalidRequest          a field of a request is unusable; names the field
├── NotFound                names what does not exist
│   ├── CollectionNotFound
│   ├── DocumentNotFound
│   ├── JobNotFound
│   ├── ModelNotFound
│   └── TokenNotFound
├── CollectionExists        a collection of that name is there already
├── JobClosed                 was cancelled and takes no documents any more
├── RequestTooLarge               larger than this device could ever hold, refused at admission
├── Unauthenticated         no credentials, or none that are known
├── PermissionDenied        the caller's role does not allow this
├── Overloaded              a queue is full; says when to come back
│   ├── QuotaExceeded       the caller has used what it may
│   └── MemoryPressure         work that can wait is not taken while memory is short
├── DeadlineExceeded        the caller's time is up
│   └── CallTimeout         the longest time of a call, or of a client's silence in it, is over
├── SlowConsumer                  the caller does not read what it is sent
├── RequestCancelled        the caller went away
├── NotReady                starting, warming or draining
├── RemoteFailed            a machine that was to compute something failed, and nothing here could go on
│   └── RemoteIncompatible         it cannot do what is asked, and would not if it were asked again
├── DocumentRejected        this document cannot be taken; the others are unaffected
│   ├── UnsupportedFormat
│   ├── EncryptedDocument
│   ├── BrokenDocument
│   ├── EmptyDocument
│   └── DocumentTooLarge    a size, time or memory limit was reached while parsing
├── ConfigurationError      a configuration key, file or command-line value
├── ProviderUnavailable     an execution provider cannot run a stage here; names it and the reason
├── AccessError             the files of tokens or certificates cannot be used
├── DiscoveryUnavailable    the network does not let boxes be looked for or announced
├── ModelError
│   ├── ModelFolderInvalid  a file is missing, changed, or not allowed in a model folder
│   ├── ModelNotLowerable   the graph has no paged form
│   ├── ModelNotAdded       a source cannot be taken into the model store, or not from here
│   ├── ModelNeeded         a model that fills a role cannot be removed
│   └── InferenceFailed     the runtime refused or failed a run
└── StorageError
    ├── DataDirectoryInUse  another daemon holds it
    ├── StorageFull
    ├── StorageCorrupt
    └── BackupInvalid       a file is no whole backup, or not one that can be put back here

``edge_rag.service.codes`` maps every class to one status code; a test proves that table total.
"""

from __future__ import annotations


class EdgeRagError(Exception):
    """Base of every error this package raises on purpose. ``str(error)`` is fit to show to a user."""


def class_of(error: BaseException) -> str:
    """Returns an error's class, and that of what led to it: to be told where a message may hold what was asked."""
    cause = error.__cause__
    return type(error).__name__ + ("" if cause is None else f" after {type(cause).__name__}")


class InvalidRequest(EdgeRagError):
    """A field of a request is unusable.

    Args:
        field: Name of the field as the caller knows it, for example ``question``.
        problem: What is wrong and what would be right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotFound(EdgeRagError):
    """Something named in a request does not exist."""


class CollectionNotFound(NotFound):
    """No collection of that name."""

    def __init__(self, collection: str, known: tuple[str, ...] | None = ()) -> None:
        """Makes the error.

        Args:
            collection: The name.
            known: Those that exist; None where the caller is not to be told.
        """
        hint = f" (known collections: {', '.join(known)})" if known else " (no documents have been ingested yet)"
        super().__init__(f"collection {collection!r} does not exist{'' if known is None else hint}")
        self.collection = collection


class CollectionExists(EdgeRagError):
    """A collection of that name is there already."""

    def __init__(self, collection: str) -> None:
        super().__init__(f"collection {collection!r} exists already")
        self.collection = collection


class DocumentNotFound(NotFound):
    """No document of that id or name in the collection."""

    def __init__(self, document: str) -> None:
        super().__init__(f"document {document!r} does not exist")
        self.document = document


class JobNotFound(NotFound):
    """No job of that id; those that ended long ago are forgotten."""

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job!r} does not exist")
        self.job = job


class JobClosed(EdgeRagError):
    """A job takes no documents any more.

    Args:
        job_id: The job.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the job {job_id} was cancelled and takes no documents any more")


class ModelNotFound(NotFound):
    """No model of that name, neither in the store nor among those that came along."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f"known models: {', '.join(known)}" if known else "no model has been added yet"
        super().__init__(f"model {name!r} does not exist ({hint})")
        self.name = name


class TokenNotFound(NotFound):
    """Nobody of that name has a token."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f"there are tokens for {', '.join(known)}" if known else "there are no tokens"
        super().__init__(f"there is no token for {name!r} ({hint})")
        self.name = name


class Unauthenticated(EdgeRagError):
    """The caller showed no credentials, or none that are known."""


class PermissionDenied(EdgeRagError):
    """The caller is known, but its role does not allow this."""


class RequestTooLarge(EdgeRagError):
    """The request needs more than the device could ever give it.

    Args:
        resource: What is short, for example ``tokens``.
        needed: Amount the request needs.
        available: The most that could ever be available.
    """

    def __init__(self, resource: str, needed: int, available: int) -> None:
        super().__init__(f"request needs {needed} {resource}, at most {available} can be had on this device")
        self.resource = resource
        self.needed = needed
        self.available = available


class Overloaded(EdgeRagError):
    """A bounded queue is full.

    Args:
        queue: Name of the queue.
        retry_after_s: When a retry is likely to be admitted, seconds.
    """

    def __init__(self, queue: str, retry_after_s: float) -> None:
        super().__init__(f"the {queue} queue is full; retry in {retry_after_s:.1f} s")
        self.queue = queue
        self.retry_after_s = retry_after_s


class QuotaExceeded(Overloaded):
    """The caller has used what it may for now.

    Args:
        bound: What was reached, for example ``60 requests a minute``.
        retry_after_s: When there is room again, seconds.
    """

    def __init__(self, bound: str, retry_after_s: float) -> None:
        EdgeRagError.__init__(self, f"the quota of {bound} is used up; retry in {retry_after_s:.1f} s")
        self.queue = "quota"
        self.retry_after_s = retry_after_s


class MemoryPressure(Overloaded):
    """Memory is short, and work that can wait is not taken.

    Args:
        retry_after_s: When to try again, seconds.
    """

    def __init__(self, retry_after_s: float) -> None:
        EdgeRagError.__init__(
            self, f"memory is short, batch requests are not taken meanwhile; retry in {retry_after_s:.0f} s"
        )
        self.queue = "generator"
        self.retry_after_s = retry_after_s


class DeadlineExceeded(EdgeRagError):
    """The deadline passed before the work was done."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"deadline exceeded in the {stage} stage")
        self.stage = stage


class CallTimeout(DeadlineExceeded):
    """A call, or its client's silence in it, lasted longer than the daemon allows.

    Args:
        problem: What lasted how long.
    """

    def __init__(self, problem: str) -> None:
        EdgeRagError.__init__(self, problem)
        self.stage = "call"


class SlowConsumer(EdgeRagError):
    """The caller does not read what it is sent.

    Args:
        seconds: For how long it has not.
        how_far: How far the answer came; empty where nothing is known of it.
    """

    def __init__(self, seconds: float, how_far: str = "") -> None:
        super().__init__(f"what was sent was not read for {seconds:g} s{'; ' if how_far else ''}{how_far}")
        self.seconds = seconds


class RequestCancelled(EdgeRagError):
    """The caller cancelled."""


class NotReady(EdgeRagError):
    """The daemon is starting, warming or draining."""


class RemoteFailed(EdgeRagError):
    """A machine that was to compute something failed, was too slow, or said what it must not.

    Args:
        problem: What went wrong.
        busy: Whether it only had no room, which says nothing against it.
    """

    def __init__(self, problem: str, busy: bool = False) -> None:
        super().__init__(problem)
        self.busy = busy


class RemoteIncompatible(RemoteFailed):
    """A machine cannot do what is asked: it has other models, or an older version."""


class DocumentRejected(EdgeRagError):
    """This document cannot be taken; what was stored before is unchanged."""


class UnsupportedFormat(DocumentRejected):
    """Neither the name nor the content is of a format that can be read."""


class EncryptedDocument(DocumentRejected):
    """The document needs a password."""


class BrokenDocument(DocumentRejected):
    """The document is damaged or not what its name says."""


class EmptyDocument(DocumentRejected):
    """The document holds no text."""


class DocumentTooLarge(DocumentRejected):
    """A size, time or memory limit was reached while the document was read."""


class ConfigurationError(EdgeRagError):
    """A configuration key, file or command-line value is unusable."""


class ProviderUnavailable(EdgeRagError):
    """An execution provider cannot run a stage on this machine.

    Args:
        provider: Name of the provider.
        reason: What is in the way.
    """

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"{provider} cannot be used: {reason}")
        self.provider = provider
        self.reason = reason


class AccessError(EdgeRagError):
    """The files of tokens or certificates cannot be used; nobody is let in by them."""


class DiscoveryUnavailable(EdgeRagError):
    """The network does not let boxes be looked for or announced."""


class ModelError(EdgeRagError):
    """Something about a model."""


class ModelFolderInvalid(ModelError):
    """A model folder is incomplete, altered, or holds something that is not allowed."""


class ModelNotLowerable(ModelError):
    """The graph cannot be put into the paged form; the reason is the message."""


class ModelNotAdded(ModelError):
    """A source cannot be taken into the model store; the store is as it was. Says why and what would work."""


class ModelNeeded(ModelError):
    """A model cannot be removed because it fills a role."""


class InferenceFailed(ModelError):
    """ONNX Runtime refused or failed a run."""


class StorageError(EdgeRagError):
    """Something about the data directory."""


class DataDirectoryInUse(StorageError):
    """Another daemon holds the data directory."""


class StorageFull(StorageError):
    """No room is left on the device; nothing acknowledged is lost."""


class StorageCorrupt(StorageError):
    """Stored bytes are not what was written."""


class BackupInvalid(StorageError):
    """A file is no whole backup, or was made by a newer version; nothing was changed."""
