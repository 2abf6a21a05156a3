"""Options of calls, and replies that ``core`` has no value for. Fields and units are those of ``proto/edge_rag/v1``."""

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
    """Options of a question; None takes the server's default.

    Attributes:
        collection: Name of the collection.
        mode: How the answer is written; ``FREE`` if there is a format and no mode.
        max_sentences: Most sentences quoted, 1 to 8.
        passages: Most passages in the prompt, 1 to 32.
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
        request_id: Id of the request in the daemon's log and audit log, 1 to 128 printable ASCII characters.
        filter: Condition on passages; ``parse_filter`` parses one from text.
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
    """Options of a search; None takes the server's default.

    Attributes:
        collection: Where to look.
        limit: Most hits, 1 to 100.
        rerank: Whether the reranker orders the hits.
        filter: Condition on passages; ``parse_filter`` parses one from text.
        explain: Whether to return the ranks and scores of each hit.
    """

    collection: str = "default"
    limit: int | None = None
    rerank: bool | None = None
    filter: Filter | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage of a document that a search found.

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
        """Returns the public part of a ranked passage."""
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
    """The passages that an answer is drawn from; the first event of an answer.

    Attributes:
        passages: Best first.
        evidence: How likely an answer is among them, 0 to 1; 0 from a daemon that does not report it.
        question_language: Language of the question, a BCP 47 tag; None if it is not sure.
    """

    passages: tuple[FoundPassage, ...]
    evidence: float = 0.0
    question_language: str | None = None


AskEvent = PassagesReceived | TextDelta | Citation | Unsupported | Finished
"""An event of an answer."""


@dataclass(frozen=True, slots=True)
class MergedPart:
    """A chunk that a passage was merged from: its characters in the stored text, and ranks and score as in
    ``HitExplanation``."""

    start: int
    end: int
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float


@dataclass(frozen=True, slots=True)
class HitExplanation:
    """The ranks and scores of a hit.

    Attributes:
        dense_rank: 1-based rank in the vector search, None if not found there.
        dense_score: Cosine similarity to the question, with ``dense_rank``.
        lexical_rank: 1-based rank in BM25, None if not found there.
        lexical_score: BM25 score, larger is better, with ``lexical_rank``.
        fused_score: Sum over the rankings of weight / (k + rank).
        boost: Factor of the collection's boosts.
        retriever_rank: 1-based rank by the fused score times the boost.
        rerank_score: The reranker's score; None where the search was not reranked.
        merged_from: Chunks that it was merged from, in order of the text; empty if it is a single chunk.
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
        """Returns the public part of an explanation."""
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
    """The result of a search.

    Attributes:
        hits: Best first.
        stages: Time per stage, in pipeline order.
        explanations: Ranks and scores of each hit, in order of the hits; empty unless ``SearchOptions.explain`` is set.
    """

    hits: tuple[FoundPassage, ...]
    stages: tuple[StageTime, ...]
    explanations: tuple[HitExplanation, ...] = ()


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


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage of the generator by client.

    Attributes:
        since: Start of the counts, UTC.
        clients: Usage by name; the last one has no name and stands for all clients that are not counted apart.
    """

    since: datetime
    clients: tuple[ClientUsage, ...]


class Health(Enum):
    """Status of the standard health service."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    UNKNOWN = "unknown"
