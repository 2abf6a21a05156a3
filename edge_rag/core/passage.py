"""Passages on their way from the index into a prompt, with ranks, scores and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log1p

from edge_rag.core.documents.filters import Filter
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.documents.parts import ChunkPlace
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import NO_CONTEXT, KvReuse, RequestContext, Turn, Wordings


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A passage of another document with nearly the same text, left out for a better one.

    Attributes:
        document_id: Id of its document.
        document: Name of the document.
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
class Surroundings:
    """The stored text of a passage and around it, from which the context of a sentence can be quoted.

    Attributes:
        text: Exactly the stored text from there on; it begins and ends between two lines.
        chunks: Chunks with text in it, and the next one, in order.
    """

    start: int
    text: str
    chunks: tuple[ChunkPlace, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk, or several adjacent ones, as read for a question.

    Attributes:
        page: 1-based page on which it starts, or None.
        start: First character in the document's stored text.
        end: One past the last character.
        context: Headings above the passage, outermost first.
        duplicates: Near-duplicates left out for this passage, best first.
        surroundings: The text around it; None where nothing is quoted of it.
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
    surroundings: Surroundings | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HitPart:
    """A chunk of a passage that was found.

    Attributes:
        dense_rank: 1-based rank in the vector search, the best one of all wordings; None if it is not in it.
        lexical_rank: 1-based rank in BM25, likewise; None if it is not in it.
        fused_score: Sum over the rankings of weight / (k + rank), as ``retriever.fusion.fuse`` says.
    """

    chunk_id: ChunkId
    start: int
    end: int
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found for a question. A merged passage has the best ranks and scores of its parts.

    Attributes:
        score: Fused score times boost; larger is better, comparable within one result only.
        dense_rank: 1-based rank in the vector search, the best one of all wordings; None if it is not in it.
        lexical_rank: 1-based rank in BM25, likewise; None if it is not in it.
        fused_score: Sum over the rankings of weight / (k + rank), as ``retriever.fusion.fuse`` says.
        boost: Factor from the collection's boosts, above 0.
        parts: Its chunks, in order of the text.
        dense_score: Cosine similarity to the question, the largest one of its wordings; None unless requested, or if it
            is not in the vector search.
        lexical_score: BM25 score, larger is better, likewise; None unless requested, or if it is not in BM25.
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
    """A request to the retriever stage.

    Attributes:
        limit: Most hits, 1 to 1,000; fewer are returned only if there are fewer.
        filter: Which passages may be found; all if None.
        explain: Whether hits carry similarity scores.
    """

    question: str
    collection: str
    limit: int
    filter: Filter | None = None
    explain: bool = False
    context: RequestContext = NO_CONTEXT
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherWording:
    """The parts that are read of a wording other than the main one."""

    text: str
    term_weights: Mapping[str, float] = field(default_factory=dict)
    as_asked: bool = False


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The result of the retriever stage.

    Attributes:
        term_weights: Inverse document frequency in the collection, natural log, of the content words of the main
            wording that are searched for (lower case, as written; in scripts without spaces, runs of two or three
            characters). A word that is not in the collection has the largest weight.
        epoch: Epoch of the collection when the text was read; text of an earlier epoch may have been removed since.
        excerpt: What encoders read of the main wording: all of a short one, of a long one the parts that carry it.
            Empty if the question is read unchanged.
        best_score: Score of a passage without boosts that every ranking has first.
        wordings: The wordings that were searched for; None if only the original question was.
        others: The wordings besides the main one; none if there is one wording.
    """

    hits: tuple[Hit, ...]
    term_weights: Mapping[str, float] = field(default_factory=dict)
    epoch: int = 0
    offload: OffloadRule = OffloadRule.NEVER
    kv_reuse: KvReuse = KvReuse.EXACT
    excerpt: str = ""
    best_score: float = 0.0
    wordings: Wordings | None = None
    others: tuple[OtherWording, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a passage got its rank."""

    hit: Hit
    retriever_rank: int
    rerank_score: float | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage and how well it answers the question.

    Attributes:
        start: First character in ``Passage.text``.
        end: One past the last character.
        evidence: Standardized over all sentences considered for the question (mean 0, deviation 1 per component, then
            summed); larger is better.
        similarity: Max-sim to the question, -1 to 1; None if it is not known, as from a remote of an earlier version.
    """

    start: int
    end: int
    evidence: float = 0.0
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage after reranking.

    Attributes:
        score: Score of the reranker, larger is better; comparable within one result only, unless it is pointwise.
        sentences: Sentences of the passage in order; they cover all of its text except white space.
    """

    passage: Passage
    score: float
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Reranked:
    """The result of the reranker stage.

    Attributes:
        evidence: Evidence that an answer is among them, 0 to 1; comparable between questions and collections. 0 for
            pointwise scores, for which it is not weighed.
    """

    passages: tuple[RankedPassage, ...]
    evidence: float


def relevances(passages: Sequence[RankedPassage], evidence: float) -> tuple[float, ...]:
    """Returns for each passage of a reranked result a number of 0 to 1, larger for a better rank.

    That of the best one is the evidence that an answer is among them, which can be compared between questions and
    collections. The scores of a reranker are about logarithms of odds, comparable within one result only, so that the
    others get as much less of it as the probability of their scores is smaller.

    Args:
        evidence: Evidence that an answer is among them, 0 to 1.
    """
    best = max((_log_sigmoid(each.score) for each in passages), default=0.0)
    return tuple(evidence * exp(_log_sigmoid(each.score) - best) for each in passages)


def _log_sigmoid(score: float) -> float:
    return min(score, 0.0) - log1p(exp(-abs(score)))


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A request to the reranker stage.

    Attributes:
        question: Non-empty text; the main wording.
        pointwise: Whether each passage is scored by its text and the question alone, 0 to 1, so that its score does not
            depend on the others, on the retriever's order or on words of a collection. The result has no sentences.
    """

    question: str
    retrieved: Retrieved
    limit: int
    context: RequestContext = NO_CONTEXT
    pointwise: bool = False


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
        dense_rank: 1-based rank in the vector search, the best one of all wordings, None if not found there.
        dense_score: Cosine similarity to the question, the largest one of its wordings, with ``dense_rank``.
        lexical_rank: 1-based rank in BM25, likewise, None if not found there.
        lexical_score: BM25 score, larger is better, likewise, with ``lexical_rank``.
        fused_score: Sum over the rankings of weight / (k + rank), at least that of the next passage by fusion.
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
