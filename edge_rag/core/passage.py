"""Passages: retrieved chunks on their way into a prompt, with the evidence gathered about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_rag.core.documents.filters import Filter
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import NO_CONTEXT, KvReuse, RequestContext


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A passage of another document with nearly the same text, which was left out for a better one.

    Attributes:
        document_id: Document it belongs to.
        document: Name of that document.
        page: 1-based page on which it starts, or None.
        start: First character in the document's stored text.
        end: One past the last character.
    """

    document_id: DocumentId
    document: str
    page: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as the query path sees it.

    Attributes:
        chunk_id: Its id in the index.
        document_id: Document it belongs to.
        document: Name of that document.
        page: 1-based page on which the passage starts, or None.
        start: First character in the document's stored text.
        end: One past the last character.
        text: Exactly the stored text in that range.
        context: Headings above the passage, outermost first.
        metadata: The document's.
        duplicates: Passages that this one stands for, best first.
    """

    chunk_id: ChunkId
    document_id: DocumentId
    document: str
    page: int | None
    start: int
    end: int
    text: str
    context: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=dict, hash=False)
    duplicates: tuple[Duplicate, ...] = ()


@dataclass(frozen=True, slots=True)
class HitPart:
    """A chunk of a passage that was found.

    Attributes:
        chunk_id: Its id in the index.
        start: First character in the document's stored text.
        end: One past the last character.
        dense_rank: 1-based rank in the vector search, None if not found there.
        lexical_rank: 1-based rank in BM25, None if not found there.
        fused_score: Sum over the rankings of weight / (k + rank).
    """

    chunk_id: ChunkId
    start: int
    end: int
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found for a question. Of one that was merged, ranks and scores are the best of its parts'.

    Attributes:
        passage: The passage.
        score: The fused score times the boost; larger is better, comparable within one result only.
        dense_rank: 1-based rank in the vector search, None if not found there.
        lexical_rank: 1-based rank in BM25, None if not found there.
        fused_score: Sum over the rankings of weight / (k + rank).
        boost: What the collection's preferences multiply the score by, above 0.
        parts: The chunks it was made of, in order of the text.
        dense_score: Cosine similarity of the question, None where it was not asked for or it was not found there.
        lexical_score: BM25 score, larger is better; None if not found there.
    """

    passage: Passage
    score: float
    dense_rank: int | None = None
    lexical_rank: int | None = None
    fused_score: float = 0.0
    boost: float = 1.0
    parts: tuple[HitPart, ...] = ()
    dense_score: float | None = None
    lexical_score: float | None = None


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """What the retriever stage is asked.

    Attributes:
        question: Non-empty text.
        collection: Where to look.
        limit: Most hits to return, 1 to 1,000; so many are found if there are so many.
        filter: Which passages may be found; all if None.
        explain: Whether hits say how similar they are to the question.
        context: For whom it is.
    """

    question: str
    collection: str
    limit: int
    filter: Filter | None = None
    explain: bool = False
    context: RequestContext = NO_CONTEXT


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What the retriever stage answers.

    Attributes:
        hits: Best first.
        term_weights: Inverse document frequency, natural log, for each content word of the question (lower case, as
            written) in the collection asked. A word found nowhere has the largest weight.
        epoch: Epoch of the collection that the text is from; one that has ended may hold text that was removed since.
        offload: The collection's rule when the passages were read.
        kv_reuse: What prompts over the collection take over of others' KV.
    """

    hits: tuple[Hit, ...]
    term_weights: Mapping[str, float] = field(default_factory=dict)
    epoch: int = 0
    offload: OffloadRule = OffloadRule.NEVER
    kv_reuse: KvReuse = KvReuse.EXACT


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a passage got its place.

    Attributes:
        hit: What the retriever found.
        retriever_rank: 1-based place among what the retriever found.
        rerank_score: The reranker's score; None where the search was not reranked.
    """

    hit: Hit
    retriever_rank: int
    rerank_score: float | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage and how well it answers the question.

    Attributes:
        start: First character in ``Passage.text``.
        end: One past the last character.
        evidence: Standardized over all sentences offered for the question (mean 0, deviation 1 per component, then
            summed); larger is better.
    """

    start: int
    end: int
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage after reranking.

    Attributes:
        passage: The passage.
        score: Reranker's score, larger is better; comparable within one result only.
        sentences: The passage's sentences in order, covering all of its text but white space.
    """

    passage: Passage
    score: float
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Reranked:
    """What the reranker stage answers.

    Attributes:
        passages: Best first.
        evidence: How much speaks for an answer being among them, 0 to 1; comparable between questions and collections.
    """

    passages: tuple[RankedPassage, ...]
    evidence: float


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """What the reranker stage is asked.

    Attributes:
        question: Non-empty text.
        retrieved: What the retriever found.
        limit: Most passages to return.
        context: For whom it is.
    """

    question: str
    retrieved: Retrieved
    limit: int
    context: RequestContext = NO_CONTEXT
