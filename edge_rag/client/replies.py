"""From protobuf to values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from edge_rag.api.v1 import common_pb2, documents_pb2, rag_pb2
from edge_rag.client.failures import unreadable_reply
from edge_rag.client.metadata_messages import read_metadata
from edge_rag.client.recognizing import read_word
from edge_rag.client.values import (
    AskEvent,
    FoundPassage,
    HitExplanation,
    MergedPart,
    PassagesReceived,
    SearchReply,
    StoredDocument,
)
from edge_rag.core.answer import Citation, Finished, FinishReason, StageTime, TextDelta, Unsupported, Usage
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome, IngestStatus
from edge_rag.core.ids import DocumentId
from edge_rag.core.passage import Duplicate

_REASONS = {
    rag_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    rag_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    rag_pb2.FINISH_REASON_NOT_FOUND: FinishReason.NOT_FOUND,
}
_STATUSES = {
    documents_pb2.INGEST_STATUS_ADDED: IngestStatus.ADDED,
    documents_pb2.INGEST_STATUS_REPLACED: IngestStatus.REPLACED,
    documents_pb2.INGEST_STATUS_UNCHANGED: IngestStatus.UNCHANGED,
    documents_pb2.INGEST_STATUS_REJECTED: IngestStatus.REJECTED,
}


def ask_event(message: rag_pb2.AskResponse) -> AskEvent | None:
    """Reads one message of an answer; None for a kind of event that this client does not know."""
    match message.WhichOneof("event"):
        case "passages":
            found = message.passages
            return PassagesReceived(tuple(_passage(passage) for passage in found.passages), found.evidence)
        case "text":
            return TextDelta(message.text.text)
        case "citation":
            return _citation(message.citation)
        case "unsupported":
            return Unsupported(message.unsupported.answer_start, message.unsupported.answer_end)
        case "finished":
            return _finished(message.finished)
        case _:
            return None


def search_reply(message: rag_pb2.SearchResponse) -> SearchReply:
    """Reads the response of ``Search``."""
    return SearchReply(
        tuple(_passage(hit) for hit in message.hits),
        _stages(message.stages),
        tuple(_explanation(explanation) for explanation in message.explanations),
    )


def ingest_outcome(message: documents_pb2.IngestResponse) -> IngestOutcome:
    """Reads the response of an ``Ingest`` call that carried one document.

    Raises:
        ClientError: INTERNAL, there is not exactly one outcome.
    """
    if len(message.outcomes) != 1:
        raise unreadable_reply(f"one document was sent, {len(message.outcomes)} outcomes came back")
    outcome = message.outcomes[0]
    info = document_info(outcome.document) if outcome.HasField("document") else None
    return IngestOutcome(outcome.name, read_word(_STATUSES, outcome.status), info, outcome.reason)


def stored_document(message: documents_pb2.GetDocumentResponse) -> StoredDocument:
    """Reads the response of ``Get``."""
    return StoredDocument(document_info(message.document), message.text)


def document_info(message: documents_pb2.Document) -> DocumentInfo:
    """Reads a document's record."""
    return DocumentInfo(
        document_id=DocumentId(message.id),
        collection=message.collection,
        name=message.name,
        title=message.title,
        media_type=message.media_type,
        sha256=message.sha256,
        size_bytes=message.size_bytes,
        characters=message.characters,
        chunks=message.chunks,
        pages=message.pages if message.HasField("pages") else None,
        ingested_at=message.ingested_at.ToDatetime(tzinfo=UTC),
        metadata=read_metadata(message.metadata),
    )


def _passage(message: common_pb2.Passage) -> FoundPassage:
    return FoundPassage(
        document_id=DocumentId(message.document_id),
        document=message.document,
        page=message.page if message.HasField("page") else None,
        start=message.start,
        end=message.end,
        text=message.text,
        score=message.score,
        context=tuple(message.context),
        metadata=read_metadata(message.metadata),
        duplicates=tuple(
            Duplicate(DocumentId(d.document_id), d.document, d.page if d.HasField("page") else None, d.start, d.end)
            for d in message.duplicates
        ),
    )


def _explanation(message: rag_pb2.Explanation) -> HitExplanation:
    return HitExplanation(
        dense_rank=message.dense_rank if message.HasField("dense_rank") else None,
        dense_score=message.dense_score if message.HasField("dense_score") else None,
        lexical_rank=message.lexical_rank if message.HasField("lexical_rank") else None,
        lexical_score=message.lexical_score if message.HasField("lexical_score") else None,
        fused_score=message.fused_score,
        boost=message.boost,
        retriever_rank=message.retriever_rank,
        rerank_score=message.rerank_score if message.HasField("rerank_score") else None,
        merged_from=tuple(
            MergedPart(
                start=part.start,
                end=part.end,
                dense_rank=part.dense_rank if part.HasField("dense_rank") else None,
                lexical_rank=part.lexical_rank if part.HasField("lexical_rank") else None,
                fused_score=part.fused_score,
            )
            for part in message.merged_from
        ),
    )


def _citation(message: rag_pb2.Citation) -> Citation:
    return Citation(
        passage=message.passage,
        document=message.document,
        page=message.page if message.HasField("page") else None,
        start=message.start,
        end=message.end,
        text=message.text,
        answer_start=message.answer_start,
        answer_end=message.answer_end,
    )


def _finished(message: rag_pb2.Finished) -> Finished:
    usage = message.usage
    return Finished(
        reason=read_word(_REASONS, message.reason),
        usage=Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_prompt_tokens=usage.cached_prompt_tokens,
            copied_prompt_tokens=usage.copied_prompt_tokens,
            generated_tokens=usage.generated_tokens,
            forced_tokens=usage.forced_tokens,
            model_steps=usage.model_steps,
        ),
        stages=_stages(message.stages),
        first_token_s=message.first_token_seconds if message.HasField("first_token_seconds") else None,
    )


def _stages(messages: Iterable[rag_pb2.StageTime]) -> tuple[StageTime, ...]:
    return tuple(StageTime(m.stage, m.queue_seconds, m.compute_seconds) for m in messages)
