"""What the daemon answers, where ``core`` has no value for it. Fields and units as in ``proto/edge_rag/v1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from edge_rag.core.answer import Citation, Finished, StageTime, TextDelta, Unsupported
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.jobs import IngestWork, Job, JobDocumentState
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import DocumentId, Unrecognized
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.passage import Duplicate


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A piece of a document that was found.

    Attributes:
        document_id: Id of the document.
        document: Its name.
        page: 1-based page on which the passage starts, or None.
        start: First character in the document's stored text.
        end: One past the last character.
        text: Exactly the stored text in that range.
        score: Larger is better; comparable within one reply only.
        context: Headings above the passage, outermost first.
        metadata: The document's.
        duplicates: Passages of other documents with nearly the same text that were left out, best first.
    """

    document_id: DocumentId
    document: str
    page: int | None
    start: int
    end: int
    text: str
    score: float
    context: tuple[str, ...]
    metadata: Metadata = field(default_factory=dict, hash=False)
    duplicates: tuple[Duplicate, ...] = ()


@dataclass(frozen=True, slots=True)
class PassagesReceived:
    """The passages an answer is drawn from; the first event of an answer.

    Attributes:
        passages: Best first.
        evidence: How much speaks for an answer being among them, 0 to 1; 0 from a daemon that does not say.
    """

    passages: tuple[FoundPassage, ...]
    evidence: float = 0.0


AskEvent = PassagesReceived | TextDelta | Citation | Unsupported | Finished


@dataclass(frozen=True, slots=True)
class MergedPart:
    """A chunk that a passage was merged from; spans, ranks and score as ``HitExplanation`` has them."""

    start: int
    end: int
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float


@dataclass(frozen=True, slots=True)
class HitExplanation:
    """How a hit got its place.

    Attributes:
        dense_rank: 1-based rank in the vector search, None if not found there.
        dense_score: Cosine similarity to the question, with ``dense_rank``.
        lexical_rank: 1-based rank in BM25, None if not found there.
        lexical_score: BM25 score, larger is better, with ``lexical_rank``.
        fused_score: Sum over the rankings of weight / (k + rank).
        boost: What the collection's preferences multiply that by.
        retriever_rank: 1-based place by the fused score times the boost.
        rerank_score: The reranker's score; None where the search was not reranked.
        merged_from: Chunks it was merged from, in order of the text; empty where it is one.
    """

    dense_rank: int | None
    dense_score: float | None
    lexical_rank: int | None
    lexical_score: float | None
    fused_score: float
    boost: float
    retriever_rank: int
    rerank_score: float | None
    merged_from: tuple[MergedPart, ...]


@dataclass(frozen=True, slots=True)
class SearchReply:
    """What a search found.

    Attributes:
        hits: Best first.
        stages: Time per stage, in pipeline order.
        explanations: How each hit got its place, in order of the hits; empty unless asked for.
    """

    hits: tuple[FoundPassage, ...]
    stages: tuple[StageTime, ...]
    explanations: tuple[HitExplanation, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document's record and the stored text that citations point into."""

    info: DocumentInfo
    text: str


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A document of a job.

    Attributes:
        collection: Where it goes; empty where it was not accepted.
        name: Its name.
        size_bytes: Size of its bytes.
        state: What became of it.
        reason: Why it was rejected or superseded; empty otherwise.
        document_id: Id of the stored document, or None.
        chunks: Number of its chunks; None where there is none, or it was replaced or deleted since.
        pages: Number of its pages; None also where its format has none.
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
    """How far a job is.

    Attributes:
        job: The job now.
        documents: Documents that changed since the progress before, each as it is now.
        cursor: Where to go on from.
        work: The document in work, or None.
    """

    job: Job
    documents: tuple[JobEntry, ...]
    cursor: int
    work: IngestWork | None


@dataclass(frozen=True, slots=True)
class DecisionsMissed:
    """Decisions, about whomever, that the daemon no longer kept when their turn to be looked at came."""

    count: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What clients used of the generator.

    Attributes:
        since: When the counting began, UTC.
        clients: By name; all those that are not kept apart together, last, without a name.
    """

    since: datetime
    clients: tuple[ClientUsage, ...]


class Health(Enum):
    """What the standard health service says."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    UNKNOWN = "unknown"
