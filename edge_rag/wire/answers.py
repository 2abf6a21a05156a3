"""Core values to protobuf."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import common_pb2, documents_pb2, rag_pb2
from edge_rag.core.answer import (
    AnswerEvent,
    Citation,
    Finished,
    FinishReason,
    PassagesFound,
    StageTime,
    TextDelta,
    Unsupported,
)
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome, IngestStatus
from edge_rag.core.generation import Generated
from edge_rag.core.ids import recognized
from edge_rag.core.passage import Duplicate, Explanation, HitPart, RankedPassage
from edge_rag.wire.metadata import metadata_to_message

_REASONS: Final = {
    FinishReason.STOP: rag_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: rag_pb2.FINISH_REASON_LENGTH,
    FinishReason.NOT_FOUND: rag_pb2.FINISH_REASON_NOT_FOUND,
}
_OUTCOMES: Final = {
    IngestStatus.ADDED: documents_pb2.INGEST_STATUS_ADDED,
    IngestStatus.REPLACED: documents_pb2.INGEST_STATUS_REPLACED,
    IngestStatus.UNCHANGED: documents_pb2.INGEST_STATUS_UNCHANGED,
    IngestStatus.REJECTED: documents_pb2.INGEST_STATUS_REJECTED,
}


def event_to_message(event: AnswerEvent) -> rag_pb2.AskResponse:
    """Returns one message of an answer."""
    match event:
        case PassagesFound():
            return rag_pb2.AskResponse(passages=_passages(event))
        case TextDelta():
            return rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=event.text))
        case Citation():
            return rag_pb2.AskResponse(citation=_citation(event))
        case Unsupported():
            unsupported = rag_pb2.Unsupported(answer_start=event.answer_start, answer_end=event.answer_end)
            return rag_pb2.AskResponse(unsupported=unsupported)
        case Finished():
            return rag_pb2.AskResponse(finished=_finished(event))


def passage_to_message(ranked: RankedPassage) -> common_pb2.Passage:
    """Returns a passage."""
    return common_pb2.Passage(
        document_id=ranked.passage.document_id,
        document=ranked.passage.document,
        page=ranked.passage.page,
        start=ranked.passage.start,
        end=ranked.passage.end,
        text=ranked.passage.text,
        score=ranked.score,
        context=ranked.passage.context,
        metadata=metadata_to_message(ranked.passage.metadata),
        duplicates=[_duplicate(duplicate) for duplicate in ranked.passage.duplicates],
    )


def explanation_to_message(explained: Explanation) -> rag_pb2.Explanation:
    """Returns how a hit got its place."""
    hit = explained.hit
    return rag_pb2.Explanation(
        dense_rank=hit.dense_rank,
        dense_score=hit.dense_score,
        lexical_rank=hit.lexical_rank,
        lexical_score=hit.lexical_score,
        fused_score=hit.fused_score,
        boost=hit.boost,
        retriever_rank=explained.retriever_rank,
        rerank_score=explained.rerank_score,
        merged_from=[_part(part) for part in hit.parts] if len(hit.parts) > 1 else [],
    )


def stage_time_to_message(stage: StageTime) -> rag_pb2.StageTime:
    """Returns the time spent in one stage."""
    return rag_pb2.StageTime(stage=stage.stage, queue_seconds=stage.queue_s, compute_seconds=stage.compute_s)


def document_to_message(info: DocumentInfo) -> documents_pb2.Document:
    """Returns a document's record."""
    ingested_at = Timestamp()
    ingested_at.FromDatetime(info.ingested_at)
    return documents_pb2.Document(
        id=info.document_id,
        collection=info.collection,
        name=info.name,
        title=info.title,
        media_type=info.media_type,
        sha256=info.sha256,
        size_bytes=info.size_bytes,
        characters=info.characters,
        chunks=info.chunks,
        pages=info.pages,
        ingested_at=ingested_at,
        metadata=metadata_to_message(info.metadata),
    )


def outcome_to_message(result: IngestOutcome) -> documents_pb2.IngestResponse.Outcome:
    """Returns what became of a document."""
    return documents_pb2.IngestResponse.Outcome(
        name=result.name,
        status=_OUTCOMES[recognized(result.status)],
        document=document_to_message(result.document) if result.document is not None else None,
        reason=result.reason,
    )


def _passages(event: PassagesFound) -> rag_pb2.Passages:
    return rag_pb2.Passages(passages=[passage_to_message(ranked) for ranked in event.passages], evidence=event.evidence)


def _duplicate(duplicate: Duplicate) -> common_pb2.Passage.Duplicate:
    return common_pb2.Passage.Duplicate(
        document_id=duplicate.document_id,
        document=duplicate.document,
        page=duplicate.page,
        start=duplicate.start,
        end=duplicate.end,
    )


def _part(part: HitPart) -> rag_pb2.Explanation.Part:
    return rag_pb2.Explanation.Part(
        start=part.start,
        end=part.end,
        dense_rank=part.dense_rank,
        lexical_rank=part.lexical_rank,
        fused_score=part.fused_score,
    )


def _citation(event: Citation) -> rag_pb2.Citation:
    return rag_pb2.Citation(
        passage=event.passage,
        document=event.document,
        page=event.page,
        start=event.start,
        end=event.end,
        text=event.text,
        answer_start=event.answer_start,
        answer_end=event.answer_end,
    )


def finished_to_message(event: Generated) -> rag_pb2.Finished:
    """Returns the end of an answer of which only the generator is known."""
    stage = StageTime("generator", event.queue_s, event.compute_s)
    return _finished(Finished(event.reason, event.usage, (stage,), event.first_token_s))


def _finished(event: Finished) -> rag_pb2.Finished:
    return rag_pb2.Finished(
        reason=_REASONS[recognized(event.reason)],
        usage=rag_pb2.Usage(
            prompt_tokens=event.usage.prompt_tokens,
            cached_prompt_tokens=event.usage.cached_prompt_tokens,
            copied_prompt_tokens=event.usage.copied_prompt_tokens,
            generated_tokens=event.usage.generated_tokens,
            forced_tokens=event.usage.forced_tokens,
            model_steps=event.usage.model_steps,
        ),
        stages=[stage_time_to_message(stage) for stage in event.stages],
        first_token_seconds=event.first_token_s,
    )
