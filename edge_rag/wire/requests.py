"""Requests, to and from protobuf.

``parse_*`` checks the message of a client, so that only legal values reach the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edge_rag.api.v1 import admin_pb2, documents_pb2, generation_pb2, rag_pb2
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.asker import Asker, QueryFields
from edge_rag.core.limits.request_fields import (
    bounded_float,
    bounded_int,
    check_format,
    checked_sampling,
    parse_collection,
    parse_model_name,
    parse_request_id,
)
from edge_rag.core.query import (
    AnswerFormat,
    AnswerMode,
    JsonSchema,
    Priority,
    Query,
    Regex,
    Sampling,
    SearchQuery,
    Turn,
)
from edge_rag.errors import InvalidRequest
from edge_rag.wire.codec import Codec, EnumCodec
from edge_rag.wire.metadata import filter_to_message, parse_filter_message
from edge_rag.wire.types import AskOptions, SearchOptions

MAX_TEXT_CHARACTERS: Final = 1_000_000
"""Most characters that a client sends in one field. No server can be configured to take more, and a longer text would
only exceed gRPC's message limit."""

_BACKENDS: Final = EnumCodec(BackendKind, admin_pb2.IndexBackendKind.DESCRIPTOR)
_PRIORITIES: Final = EnumCodec(Priority, rag_pb2.Priority.DESCRIPTOR)
_TURN: Final = Codec(Turn, rag_pb2.Turn)
MODES: Final = EnumCodec(AnswerMode, rag_pb2.AnswerMode.DESCRIPTOR)
"""Numbers of the answer modes."""

_SAMPLING_FIELDS: Final = ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed")


def parse_query(request: rag_pb2.AskRequest, asker: Asker) -> Query:
    """Returns the legal query that a request stands for."""
    mode = MODES.get(request.mode) if request.mode else asker.limits.default_mode
    if mode is None:
        raise InvalidRequest("mode", f"{request.mode} is not an answer mode")
    return asker.query(
        request.question,
        parse_collection(request.collection),
        mode=mode,
        max_sentences=request.max_sentences if request.HasField("max_sentences") else None,
        passages=request.passages if request.HasField("passages") else None,
        sampling=parse_sampling(request.sampling),
        priority=parse_priority(request.priority),
        form=_format(request),
        allow_truncated=request.allow_truncated,
        condition=parse_filter_message(request.filter) if request.HasField("filter") else None,
        turns=[*map(_TURN.from_message, request.turns)],
        fields=QueryFields(form=request.WhichOneof("format") or "", stop="sampling.stop"),
    )


def parse_search_query(request: rag_pb2.SearchRequest, asker: Asker) -> SearchQuery:
    """Returns the legal search that a request stands for; see ``parse_query``."""
    return asker.search(
        request.query,
        parse_collection(request.collection),
        request.limit if request.HasField("limit") else 10,
        rerank=request.rerank if request.HasField("rerank") else True,
        condition=parse_filter_message(request.filter) if request.HasField("filter") else None,
        explain=request.explain,
        turns=[*map(_TURN.from_message, request.turns)],
    )


def parse_page_size(request: documents_pb2.ListDocumentsRequest) -> int:
    """Returns the page size of a listing of documents, 100 by default."""
    return bounded_int("page_size", request.page_size if request.HasField("page_size") else 100, 1, 1000)


def parse_text_range(request: documents_pb2.GetDocumentRequest) -> tuple[int | None, int | None]:
    """Returns the first character of the wanted text and one past the last; None if the request does not say."""
    return (
        request.start if request.HasField("start") else None,
        request.end if request.HasField("end") else None,
    )


def parse_job_limit(request: documents_pb2.ListJobsRequest) -> int:
    """Returns the number of jobs to list, 20 by default."""
    return bounded_int("limit", request.limit if request.HasField("limit") else 20, 1, 1000)


def parse_audit_query(request: admin_pb2.ListAuditEventsRequest) -> tuple[RequestId | None, int | None]:
    """Returns the request whose entries to list and the most entries to list; None for all."""
    limit = bounded_int("limit", request.limit, 0, 1_000_000) if request.HasField("limit") else None
    return parse_request_id(request.request_id) if request.request_id else None, limit


def parse_interval(request: admin_pb2.WatchStatusRequest) -> float:
    """Returns the time between two status messages, seconds, 1 by default."""
    if not request.HasField("interval_seconds"):
        return 1.0
    return bounded_float("interval_seconds", request.interval_seconds, 0.1, 3600.0)


def parse_use_model(request: admin_pb2.UseModelRequest) -> tuple[str, str]:
    """Returns a role and the name of its new model."""
    return request.role, parse_model_name(request.name)


def parse_move_index(request: admin_pb2.MoveIndexRequest) -> tuple[str, BackendKind]:
    """Returns a collection and its new index backend."""
    backend = _BACKENDS.get(request.backend)
    if backend is None:
        raise InvalidRequest("backend", "must be INDEX_BACKEND_FAISS or INDEX_BACKEND_MILVUS")
    return request.collection, backend


def parse_format(
    request: rag_pb2.AskRequest | generation_pb2.GenerateRequest, mode: AnswerMode, sampling: Sampling
) -> AnswerFormat | None:
    """Returns the format of the answer, or None."""
    form = _format(request)
    if form is not None:
        check_format(request.WhichOneof("format") or "", form, mode, "sampling.stop" if sampling.stop else None)
    return form


def _format(request: rag_pb2.AskRequest | generation_pb2.GenerateRequest) -> AnswerFormat | None:
    field = request.WhichOneof("format")
    if field is None:
        return None
    return JsonSchema(request.json_schema) if field == "json_schema" else Regex(request.regex)


def parse_priority(value: rag_pb2.Priority.ValueType) -> Priority:
    """Returns the scheduling class, INTERACTIVE by default."""
    priority = _PRIORITIES.get(value) if value else Priority.INTERACTIVE
    if priority is None:
        raise InvalidRequest("priority", f"{value} is not a priority")
    return priority


def parse_sampling(value: rag_pb2.Sampling) -> Sampling:
    default = Sampling()
    named = {field: getattr(value, field) for field in _SAMPLING_FIELDS if value.HasField(field)}
    return checked_sampling(replace(default, stop=tuple(value.stop), **named), "sampling.")


def ask_to_message(question: str, options: AskOptions) -> rag_pb2.AskRequest:
    """Returns the request of ``Ask``; an option that is None is left to the server."""
    formats = [text for text in (options.json_schema, options.regex) if text is not None]
    if len(formats) > 1:
        raise InvalidRequest("json_schema, regex", "an answer has one format; leave one out")
    mode = AnswerMode.FREE if formats and options.mode is None else options.mode
    request = rag_pb2.AskRequest(
        request_id=sendable("request_id", options.request_id or ""),
        question=sendable("question", question),
        collection=sendable("collection", options.collection),
        mode=rag_pb2.ANSWER_MODE_UNSPECIFIED if mode is None else MODES.to_number(mode),
        max_sentences=options.max_sentences,
        passages=options.passages,
        sampling=rag_pb2.Sampling(
            stop=[sendable("stop", text) for text in options.stop],
            **{field: getattr(options, field) for field in _SAMPLING_FIELDS},
        ),
        allow_truncated=options.allow_truncated,
        priority=rag_pb2.PRIORITY_UNSPECIFIED if options.priority is None else _PRIORITIES.to_number(options.priority),
        filter=filter_to_message(options.filter),
        turns=_turns_to_messages(options.turns),
    )
    if options.json_schema is not None:
        request.json_schema = sendable("json_schema", options.json_schema)
    if options.regex is not None:
        request.regex = sendable("regex", options.regex)
    return request


def search_to_message(query: str, options: SearchOptions) -> rag_pb2.SearchRequest:
    """Returns the request of ``Search``; an option that is None is left to the server."""
    return rag_pb2.SearchRequest(
        query=sendable("query", query),
        collection=sendable("collection", options.collection),
        limit=options.limit,
        rerank=options.rerank,
        filter=filter_to_message(options.filter),
        explain=options.explain,
        turns=_turns_to_messages(options.turns),
    )


def move_index_to_message(collection: str, backend: BackendKind) -> admin_pb2.MoveIndexRequest:
    return admin_pb2.MoveIndexRequest(collection=collection, backend=_BACKENDS.to_number(backend))


def _turns_to_messages(turns: Sequence[Turn]) -> list[rag_pb2.Turn]:
    for number, turn in enumerate(turns):
        for text in turn.texts():
            sendable(f"turns[{number}]", text)
    return [*map(_TURN.to_message, turns)]


def sendable(field: str, text: str) -> str:
    """Returns a text that protobuf can carry and a server could take."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InvalidRequest(
            field, f"{len(text):,} characters are too many; a server takes 8,192 unless configured otherwise"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(field, f"not valid UTF-8 at character {error.start + 1}") from error
    return text
