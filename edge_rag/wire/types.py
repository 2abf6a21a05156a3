"""Values of the API that ``core`` has no value for. Fields and units are those of ``proto/edge_rag/v1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from edge_rag.core.answer import Citation, Finished, StageTime, TextDelta, Unsupported
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import Filter
from edge_rag.core.documents.jobs import IngestWork, Job, JobDocumentState
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import DocumentId, Unrecognized
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.passage import Duplicate, Explanation, RankedPassage
from edge_rag.core.query import AnswerMode, Priority


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How a question is to be answered; None takes the server's default.

    Attributes:
        collection: Where to look.
        mode: How much freedom the generator has; with a format, free unless given.
        max_sentences: Most sentences quoted, 1 to 8.
        passages: Most passages put before the model, 1 to 32.
        max_tokens: Most tokens generated, 1 to 8,192.
        temperature: 0 is greedy; up to 2.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches this, in (0, 1].
        repetition_penalty: 1 is off; up to 10.
        seed: The same seed gives the same answer.
        stop: Texts that end the answer; at most 8.
        priority: Scheduling class.
        json_schema: JSON Schema, as text, that the answer validates under unless it is cut at ``max_tokens``.
        regex: Regular expression that the whole answer matches, likewise; not together with ``json_schema``.
        request_id: Names the request in the daemon's log and audit trail, 1 to 128 printable ASCII characters.
        filter: Which passages may be used; ``parse_filter`` reads one from text.
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
    request_id: str | None = None
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a search is to be done; None takes the server's default.

    Attributes:
        collection: Where to look.
        limit: Most hits, 1 to 100.
        rerank: Whether the reranker orders the hits.
        filter: Which passages may be found; ``parse_filter`` reads one from text.
        explain: Whether to say how each hit got its place.
    """

    collection: str = "default"
    limit: int | None = None
    rerank: bool | None = None
    filter: Filter | None = None
    explain: bool = False


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

    @classmethod
    def of(cls, ranked: RankedPassage) -> FoundPassage:
        """Returns what callers see of a ranked passage."""
        passage = ranked.passage
        return cls(
            passage.document_id,
            passage.document,
            passage.page,
            passage.start,
            passage.end,
            passage.text,
            ranked.score,
            passage.context,
            passage.metadata,
            passage.duplicates,
        )


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

    @classmethod
    def of(cls, explained: Explanation) -> HitExplanation:
        """Returns what callers see of an explanation."""
        hit = explained.hit
        parts = hit.parts if len(hit.parts) > 1 else ()
        return cls(
            hit.dense_rank,
            hit.dense_score,
            hit.lexical_rank,
            hit.lexical_score,
            hit.fused_score,
            hit.boost,
            explained.retriever_rank,
            explained.rerank_score,
            tuple(
                MergedPart(part.start, part.end, part.dense_rank, part.lexical_rank, part.fused_score) for part in parts
            ),
        )


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
class EntriesDropped:
    """Entries of the audit log, of any request, that the daemon had dropped before they could be sent.

    Attributes:
        count: Number of entries.
    """

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
