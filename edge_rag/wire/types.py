"""Options of calls, and replies that ``core`` has no value for. Fields and units are those of ``proto/edge_rag/v1``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.answer import Citation, Finished, StageTime, TextDelta, Unsupported
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import Filter
from edge_rag.core.documents.jobs import IngestWork, Job, JobDocumentState
from edge_rag.core.ids import DocumentId, Unrecognized
from edge_rag.core.passage import FoundPassage, HitExplanation
from edge_rag.core.query import AnswerMode, Priority, Turn

UNTOLD: Final = Unrecognized("unspecified")
"""An enum value that a daemon of an earlier version does not send."""


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Options of a question; None takes the server's default.

    Attributes:
        collection: Name of the collection.
        mode: How the answer is written; ``FREE`` if there is a format and no mode.
        max_sentences: Most points quoted, 1 to 8, each a sentence with what belongs to it; without it as many as the
            answer needs.
        passages: Most passages in the prompt, 1 to 32.
        max_tokens: Most tokens generated, 1 to 8,192.
        temperature: 0 is greedy; up to 2.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches this, in (0, 1].
        repetition_penalty: 1 is off; up to 10.
        seed: The same seed gives the same answer.
        stop: Texts that end the answer; at most 8.
        priority: Scheduling class.
        json_schema: JSON Schema, as text, that the answer validates under: written by the model in mode ``FREE``, where
            ``AnswerTruncated`` is raised if it is cut at ``max_tokens``, or filled with values of the documents in mode
            ``EXTRACT``.
        regex: Regular expression that the whole answer matches, in mode ``FREE``; not together with ``json_schema``.
        allow_truncated: Whether an answer that is cut before it is complete in its format is no error.
        request_id: Id of the request in the daemon's log and audit log, 1 to 128 printable ASCII characters.
        filter: Condition on passages; ``parse_filter`` parses one from text.
        turns: Earlier turns of the conversation, oldest first, at most 8; an incomplete question is completed
            from them.
    """

    collection: str = "default"
    mode: AnswerMode | None = None
    max_sentences: int | None = None
    passages: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    priority: Priority | None = None
    json_schema: str | None = None
    regex: str | None = None
    allow_truncated: bool = False
    request_id: str | None = None
    filter: Filter | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search; None takes the server's default.

    Attributes:
        collection: Where to look.
        limit: Most hits, 1 to 100.
        rerank: Whether the reranker orders the hits.
        filter: Condition on passages; ``parse_filter`` parses one from text.
        explain: Whether to return the ranks and scores of each hit.
        turns: Earlier turns of the conversation, as ``AskOptions.turns``.
    """

    collection: str = "default"
    limit: int | None = None
    rerank: bool | None = None
    filter: Filter | None = None
    explain: bool = False
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class PassagesReceived:
    """The passages that an answer is drawn from, in mode ``FREE`` those that the model is given; the first event.

    Attributes:
        passages: Best first.
        evidence: How likely an answer is among them, 0 to 1; 0 from a daemon that does not report it.
        question_language: Language of the question, a BCP 47 tag; None if it is not sure.
        standalone_question: The question, completed from earlier turns, which was searched for as well; None if
            it is complete.
        did_you_mean: The question with misspelled words as the documents spell them, which was searched for as well;
            None if nothing is misspelled.
        mode: How the answer is written; ``Unrecognized`` from a daemon that does not report it.
        model: Name of the box's language model, where the mode needs one. Where the collection may leave the box, a
            remote may write in its place.
    """

    passages: tuple[FoundPassage, ...]
    evidence: float = 0.0
    question_language: str | None = None
    standalone_question: str | None = None
    did_you_mean: str | None = None
    mode: AnswerMode | Unrecognized = UNTOLD
    model: str | None = None


AskEvent = PassagesReceived | TextDelta | Citation | Unsupported | Finished
"""An event of an answer."""


@dataclass(frozen=True, slots=True)
class SearchReply:
    """The result of a search.

    Attributes:
        hits: Best first.
        stages: Time per stage, in pipeline order.
        explanations: Ranks and scores of each hit, in order of the hits; empty unless ``SearchOptions.explain`` is set.
        standalone_question: As in ``PassagesReceived``.
        did_you_mean: As in ``PassagesReceived``.
    """

    hits: tuple[FoundPassage, ...]
    stages: tuple[StageTime, ...]
    explanations: tuple[HitExplanation, ...] = ()
    standalone_question: str | None = None
    did_you_mean: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document's record and its stored text, which citations point into."""

    info: DocumentInfo
    text: str


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A document of a job.

    Attributes:
        collection: Its collection; empty if it was not accepted.
        name: Its name.
        size_bytes: Size of its bytes.
        state: Its state.
        reason: Reason of its rejection or supersession, or a note about parts that were left out; otherwise empty.
        document_id: Id of the stored document, or None.
        chunks: Number of its chunks; None if it is not stored, or was replaced or deleted since.
        pages: Number of its pages; None also if its format has none.
    """

    collection: str
    name: str
    size_bytes: int
    state: JobDocumentState | Unrecognized
    reason: str
    document_id: DocumentId | None
    chunks: int | None = None
    pages: int | None = None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    Attributes:
        job: The job's current state.
        documents: The current state of documents that changed since the previous progress.
        cursor: Position to continue from.
        work: The document that is being stored, or None.
    """

    job: Job
    documents: tuple[JobEntry, ...]
    cursor: int
    work: IngestWork | None


@dataclass(frozen=True, slots=True)
class EntriesDropped:
    """Entries of the audit log, of any request, that the daemon had dropped before they could be sent.

    Attributes:
        count: Number of entries.
    """

    count: int


class Health(Enum):
    """Status of the standard health service."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    UNKNOWN = "unknown"
