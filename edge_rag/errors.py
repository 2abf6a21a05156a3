"""The error tree.

EdgeRagError
├── InvalidRequest          a field of a request is invalid; names the field
│   └── UndecodableMessage  a message is not of the operation's type
├── NotFound                names the missing thing
│   ├── CollectionNotFound
│   ├── DocumentNotFound
│   ├── OriginalNotKept     the text of a document is stored, its bytes are not
│   ├── PageUnavailable     a page has no picture, or no boxes
│   ├── FileNotFound
│   ├── JobNotFound
│   ├── FeedbackNotFound
│   ├── QuestionNotFound
│   ├── ModelNotFound
│   ├── TokenNotFound
│   └── ValueMissing        documents have no value for required fields of an extracted answer
├── CollectionExists        a collection of that name exists
├── FileIncomplete          the bytes of a file are not kept any more
├── JobClosed               the job was cancelled and accepts no documents
├── RequestTooLarge         larger than this device can ever hold; refused at admission
├── Unauthenticated         no credentials, or unknown ones
├── PermissionDenied        the caller's role does not allow this
├── Overloaded              a queue is full; has the time after which to retry
│   ├── QuotaExceeded       the caller's quota is used up
│   └── MemoryPressure      memory is short; batch requests are refused
├── DeadlineExceeded        the request's deadline passed
│   └── CallTimeout         a call, or its client's silence, lasted too long
├── AnswerTruncated         an answer was cut before it was complete in its format
├── SlowConsumer            the client does not read the stream
├── RequestCancelled        the client cancelled
├── NotReady                the daemon is starting or draining
├── RemoteFailed            another machine failed, and this one could not continue
│   └── RemoteIncompatible  another machine cannot do this, and a retry will not help
├── DocumentRejected        this document cannot be ingested; others are not affected
│   ├── UnsupportedFormat
│   ├── EncryptedDocument
│   ├── BrokenDocument
│   ├── EmptyDocument
│   └── DocumentTooLarge    a size, time or memory limit was reached during parsing
├── ConfigurationError      a configuration key, file or command-line value is invalid
├── ProviderUnavailable     an execution provider cannot run a stage here; has the reason
├── ConfirmationNeeded      a change would shut its caller out, and was not confirmed
├── AccessError             the files of tokens or certificates cannot be used
│   └── TokenExists         a token of that name exists
├── DiscoveryUnavailable    the network does not allow multicast DNS
├── ModelError
│   ├── ModelFolderInvalid  a file of a model folder is missing, changed or not allowed
│   ├── ModelNotLowerable   the graph has no paged form
│   ├── ModelNotAdded       a source cannot be added to the model store
│   ├── ModelNeeded         a model that fills a role cannot be removed
│   ├── GeneratorMissing    an answer needs a language model, and there is none
│   └── InferenceFailed     ONNX Runtime failed
└── StorageError
    ├── DataDirectoryInUse  another daemon holds it
    ├── DataDirectoryNotPrivate  other users can reach it
    ├── StorageFull
    ├── StorageCorrupt
    ├── StorageReadOnly     recovery mode: the intact part is served, and nothing is changed
    └── BackupInvalid       not a complete backup, or not one that can be restored here

``edge_rag.service.codes`` maps every class to one status code; a test proves that table total.
"""

from __future__ import annotations


class EdgeRagError(Exception):
    """Base of every error that this package raises deliberately. ``str(error)`` can be shown to users."""


def error_class(error: BaseException) -> str:
    """Returns the classes of an error and its cause, for places where messages may contain text of questions."""
    cause = error.__cause__
    return type(error).__name__ + ("" if cause is None else f" after {type(cause).__name__}")


class InvalidRequest(EdgeRagError):
    """A field of a request is invalid.

    Args:
        field: Name of the field as the caller knows it, for example ``question``.
        problem: The mistake, and the allowed values.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotFound(EdgeRagError):
    """Something named in a request does not exist."""


def _listed(names: tuple[str, ...], most: int = 20) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


class CollectionNotFound(NotFound):
    """No collection has that name."""

    def __init__(self, collection: str, known: tuple[str, ...] | None = (), allowed: tuple[str, ...] = ()) -> None:
        """Creates the error.

        Args:
            collection: The name.
            known: Names that exist; None if the caller may not learn them.
            allowed: Names that the caller may use, whether they exist or not, where ``known`` is None.
        """
        if known is None:
            hint = f" for you; you may use: {_listed(allowed)}" if allowed else ""
        else:
            hint = f" (known collections: {_listed(known)})" if known else " (no documents have been ingested yet)"
        super().__init__(f"collection {collection!r} does not exist{hint}")
        self.collection = collection
        self.known = known
        self.allowed = allowed


class CollectionExists(EdgeRagError):
    """A collection of that name exists."""

    def __init__(self, collection: str) -> None:
        super().__init__(f"collection {collection!r} already exists")
        self.collection = collection


class DocumentNotFound(NotFound):
    """No document of the collection has that id or name."""

    def __init__(self, document: str) -> None:
        super().__init__(f"document {document!r} does not exist")
        self.document = document


class OriginalNotKept(NotFound):
    """The bytes of a document are not kept, only its text."""

    def __init__(self, document: str) -> None:
        super().__init__(
            f"the original of document {document!r} is not kept; with ingest.keep_originals, ingest the file again"
        )


class PageUnavailable(NotFound):
    """A document has no pages that can be shown, or a range of its text is not known to be on one."""


class JobNotFound(NotFound):
    """No job has that id; old finished jobs are deleted."""

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job!r} does not exist")
        self.job = job


class QuestionNotFound(NotFound):
    """No test question of the collection has that id."""

    def __init__(self, question: str) -> None:
        super().__init__(f"test question {question!r} does not exist")


class JobClosed(EdgeRagError):
    """A job accepts no more documents.

    Args:
        job_id: Id of the job.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the job {job_id} was cancelled and accepts no more documents")


class FileNotFound(NotFound):
    """No file has that id, it has expired, or it belongs to another identity."""

    def __init__(self, file_id: str) -> None:
        super().__init__(f"file {file_id[:256]!r} does not exist")
        self.file_id = file_id


class FeedbackNotFound(NotFound):
    """No feedback has that id; it was deleted, or dropped as the oldest."""

    def __init__(self, feedback_id: str) -> None:
        super().__init__(f"feedback {feedback_id!r} does not exist")
        self.feedback_id = feedback_id


class FileIncomplete(EdgeRagError):
    """A file is needed whose bytes are not kept any more."""


class ModelNotFound(NotFound):
    """No added or bundled model has that name."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f"known models: {', '.join(known)}" if known else "no model has been added yet"
        super().__init__(f"model {name!r} does not exist ({hint})")
        self.name = name


class TokenNotFound(NotFound):
    """No token has that name."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f"there are tokens for {', '.join(known)}" if known else "there are no tokens"
        super().__init__(f"there is no token for {name!r} ({hint})")
        self.name = name


class ValueMissing(NotFound):
    """The documents have values for some fields of an extracted answer, and none for others that are required.

    Args:
        pointers: JSON pointers to the fields.
    """

    def __init__(self, pointers: tuple[str, ...]) -> None:
        super().__init__(
            f"the documents have no value for {', '.join(pointers)}, which the schema requires: allow null there, or "
            "leave the name out of required"
        )
        self.pointers = pointers


class AccessError(EdgeRagError):
    """The files of tokens or certificates cannot be used; access by them is denied."""


class TokenExists(AccessError):
    """A token with that name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a token for {name} already; revoke it first, or choose another name")
        self.name = name


class ConfirmationNeeded(EdgeRagError):
    """A change would shut its caller out, and was not confirmed."""


class Unauthenticated(EdgeRagError):
    """The caller sent no credentials, or unknown ones."""


class PermissionDenied(EdgeRagError):
    """The caller's role does not allow this."""


class UndecodableMessage(InvalidRequest):
    """A message of the client is not one of the operation's type."""

    def __init__(self) -> None:
        super().__init__("request", "could not be decoded")


class RequestTooLarge(EdgeRagError):
    """The request needs more than the device can ever provide.

    Args:
        resource: The scarce resource, for example ``tokens``.
        needed: Amount that the request needs.
        available: Largest amount that can be available.
    """

    def __init__(self, resource: str, needed: int, available: int) -> None:
        super().__init__(f"request needs {needed} {resource}, this device can provide at most {available}")
        self.resource = resource
        self.needed = needed
        self.available = available


class Overloaded(EdgeRagError):
    """A bounded queue is full.

    Args:
        queue: Name of the queue.
        retry_after_s: Time after which a retry is likely to be admitted, seconds.
    """

    def __init__(self, queue: str, retry_after_s: float) -> None:
        super().__init__(f"the {queue} queue is full; retry in {retry_after_s:.1f} s")
        self.queue = queue
        self.retry_after_s = retry_after_s


class QuotaExceeded(Overloaded):
    """The caller's quota is used up.

    Args:
        bound: The limit reached, for example ``60 requests a minute``.
        retry_after_s: Time until it allows a call again, seconds.
    """

    def __init__(self, bound: str, retry_after_s: float) -> None:
        EdgeRagError.__init__(self, f"the quota of {bound} is used up; retry in {retry_after_s:.1f} s")
        self.queue = "quota"
        self.retry_after_s = retry_after_s


class MemoryPressure(Overloaded):
    """Memory is short, and batch requests are refused.

    Args:
        retry_after_s: Time after which to retry, seconds.
    """

    def __init__(self, retry_after_s: float) -> None:
        EdgeRagError.__init__(self, f"memory is short, batch requests are refused; retry in {retry_after_s:.0f} s")
        self.queue = "generator"
        self.retry_after_s = retry_after_s


class DeadlineExceeded(EdgeRagError):
    """The deadline passed before the work was done."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"deadline exceeded in the {stage} stage")
        self.stage = stage


class CallTimeout(DeadlineExceeded):
    """A call, or its client's silence, lasted longer than the daemon allows.

    Args:
        problem: What lasted how long.
    """

    def __init__(self, problem: str) -> None:
        EdgeRagError.__init__(self, problem)
        self.stage = "call"


class AnswerTruncated(EdgeRagError):
    """An answer was cut before it was complete in its format, so that it is not in that format.

    Args:
        tokens: Tokens of the answer when it was cut.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__(
            f"the answer was cut after {tokens:,} tokens, before it was complete in its format: allow more with "
            "max_tokens (--max-tokens), or ask for the cut text with allow_truncated (--allow-truncated)"
        )
        self.tokens = tokens


class SlowConsumer(EdgeRagError):
    """The client does not read the stream.

    Args:
        seconds: How long it has not read, seconds.
        how_far: How far the answer had got; empty if that is not known.
    """

    def __init__(self, seconds: float, how_far: str = "") -> None:
        super().__init__(f"the client did not read the stream for {seconds:g} s{'; ' if how_far else ''}{how_far}")
        self.seconds = seconds


class RequestCancelled(EdgeRagError):
    """The client cancelled."""


class NotReady(EdgeRagError):
    """The daemon is starting or draining."""


class RemoteFailed(EdgeRagError):
    """Another machine failed, was too slow, or sent an invalid result.

    Args:
        problem: What went wrong.
        busy: Whether the machine only had no capacity, which does not count as a failure.
    """

    def __init__(self, problem: str, busy: bool = False) -> None:
        super().__init__(problem)
        self.busy = busy


class RemoteIncompatible(RemoteFailed):
    """Another machine cannot do this: it has other models, or an older version."""


class DocumentRejected(EdgeRagError):
    """This document cannot be ingested; stored documents are unchanged."""


class UnsupportedFormat(DocumentRejected):
    """Neither name nor content is of a format that is read."""


class EncryptedDocument(DocumentRejected):
    """The document needs a password."""


class BrokenDocument(DocumentRejected):
    """The document is damaged, or not of the format that its name states."""


class EmptyDocument(DocumentRejected):
    """The document has no text."""


class DocumentTooLarge(DocumentRejected):
    """A size limit was exceeded, or a time or memory limit during parsing."""


class ConfigurationError(EdgeRagError):
    """A configuration key, file or command-line value is invalid."""


class ProviderUnavailable(EdgeRagError):
    """An execution provider cannot run a stage on this machine.

    Args:
        provider: Name of the provider.
        reason: The obstacle.
    """

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"{provider} cannot be used: {reason}")
        self.provider = provider
        self.reason = reason


class DiscoveryUnavailable(EdgeRagError):
    """The network does not allow multicast DNS."""


class ModelError(EdgeRagError):
    """Base of errors of models."""


class ModelFolderInvalid(ModelError):
    """A model folder is incomplete, changed, or has a file that is not allowed."""


class ModelNotLowerable(ModelError):
    """The graph cannot be converted to the paged form; the message has the reason."""


class ModelNotAdded(ModelError):
    """A source cannot be added to the model store, which is unchanged. The message has the reason and what would
    work.
    """


class ModelNeeded(ModelError):
    """A model cannot be removed because it fills a role."""


class GeneratorMissing(ModelError):
    """An answer needs a language model, and the box has none.

    Args:
        mode: The mode of the answer.
    """

    def __init__(self, mode: str) -> None:
        super().__init__(
            f"mode {mode} needs a language model, and this box has none: add one, for example with "
            "`edge-rag models add smollm2-135m`, and select it with `edge-rag models use generator NAME`"
        )


class InferenceFailed(ModelError):
    """ONNX Runtime failed to run a model."""


class StorageError(EdgeRagError):
    """Base of errors of the data directory."""


class DataDirectoryInUse(StorageError):
    """Another daemon holds the data directory."""


class DataDirectoryNotPrivate(StorageError):
    """The data directory, or something in it, belongs to another user or cannot be closed to other users."""


class StorageFull(StorageError):
    """No space is left on the device; acknowledged data is not lost."""


class StorageCorrupt(StorageError):
    """Stored bytes are damaged."""


class StorageReadOnly(StorageError):
    """The library is damaged; its intact part is served, and nothing is changed."""


class BackupInvalid(StorageError):
    """A file is not a complete backup, or a newer version wrote it; nothing was changed."""
