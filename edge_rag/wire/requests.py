"""Requests, to and from protobuf.

``parse_*`` checks what a client sends, so that only legal values reach the service.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from edge_rag.api.v1 import admin_pb2, documents_pb2, generation_pb2, rag_pb2
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.documents.jobs import JobId
from edge_rag.core.identity import Identity
from edge_rag.core.ids import RequestId, is_model_name, is_request_id
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Query, Regex, Sampling, SearchQuery
from edge_rag.errors import InvalidRequest
from edge_rag.wire.codec import EnumCodec
from edge_rag.wire.metadata import filter_to_message, parse_filter_message
from edge_rag.wire.types import AskOptions, SearchOptions

DEFAULT_COLLECTION: Final = "default"

MAX_TEXT_CHARACTERS: Final = 1_000_000
"""Most characters that a client sends in one field. No server can be configured to take more, and a longer text would
only exceed gRPC's message limit."""

MAX_FORMAT_CHARACTERS: Final = 65_536
"""Most characters of a JSON schema or a regular expression."""

_COLLECTION = re.compile(r"[a-z0-9_-]{1,64}")
_JOB_ID = re.compile(r"[0-9a-f]{1,64}")
_BACKENDS: Final = EnumCodec(BackendKind, admin_pb2.IndexBackendKind.DESCRIPTOR)
_PRIORITIES: Final = EnumCodec(Priority, rag_pb2.Priority.DESCRIPTOR)
_MODES: Final = EnumCodec(AnswerMode, rag_pb2.AnswerMode.DESCRIPTOR)
_SAMPLING_FIELDS: Final = ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds and defaults of a request.

    Attributes:
        question_characters: Longest question, characters.
        default_mode: Answer mode of a request without one.
        default_passages: Passages in the prompt of a request without a number.
    """

    question_characters: int
    default_mode: AnswerMode
    default_passages: int


def parse_request_id(value: str, default: RequestId) -> RequestId:
    """Returns the client's request id; the default if it is empty.

    Raises:
        InvalidRequest: It is not 1 to 128 printable ASCII characters.
    """
    if not value:
        return default
    if not is_request_id(value):
        raise InvalidRequest("request_id", "must be 1 to 128 printable ASCII characters without spaces")
    return RequestId(value)


def parse_collection(value: str) -> str:
    """Returns a collection's name; ``default`` if it is empty.

    Raises:
        InvalidRequest: It is not a legal name.
    """
    return parse_collection_name(value, "collection") if value else DEFAULT_COLLECTION


def parse_collection_name(value: str, field: str = "name") -> str:
    """Returns a collection's name, which is required.

    Raises:
        InvalidRequest: It is not a legal name.
    """
    if not _COLLECTION.fullmatch(value):
        raise InvalidRequest(field, "must be 1 to 64 characters of a-z, 0-9, - and _")
    return value


def parse_query(
    request: rag_pb2.AskRequest,
    request_id: RequestId,
    collection: str,
    caller: Identity,
    deadline: float,
    limits: RequestLimits,
) -> Query:
    """Returns the legal query that a request stands for.

    Args:
        request: The request.
        request_id: Its id.
        collection: Name of the collection, checked.
        caller: The caller's identity.
        deadline: ``time.monotonic()`` seconds.
        limits: Bounds and defaults.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    mode = _MODES.get(request.mode) if request.mode else limits.default_mode
    if mode is None:
        raise InvalidRequest("mode", f"{request.mode} is not an answer mode")
    sentences = request.max_sentences if request.HasField("max_sentences") else 1
    passages = request.passages if request.HasField("passages") else limits.default_passages
    sampling = parse_sampling(request.sampling)
    return Query(
        request_id=request_id,
        question=parse_text("question", request.question, limits.question_characters),
        collection=collection,
        mode=mode,
        max_sentences=bounded_int("max_sentences", sentences, 1, 8),
        passages=bounded_int("passages", passages, 1, 32),
        sampling=sampling,
        priority=caller.capped_priority(parse_priority(request.priority)),
        client=caller.name,
        deadline=deadline,
        format=parse_format(request, mode, sampling),
        filter=parse_filter_message(request.filter) if request.HasField("filter") else None,
    )


def parse_search_query(
    request: rag_pb2.SearchRequest,
    request_id: RequestId,
    collection: str,
    caller: Identity,
    deadline: float,
    limits: RequestLimits,
) -> SearchQuery:
    """Returns the legal search that a request stands for; see ``parse_query``.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    limit = request.limit if request.HasField("limit") else 10
    return SearchQuery(
        request_id=request_id,
        query=parse_text("query", request.query, limits.question_characters),
        collection=collection,
        limit=bounded_int("limit", limit, 1, 100),
        rerank=request.rerank if request.HasField("rerank") else True,
        client=caller.name,
        deadline=deadline,
        filter=parse_filter_message(request.filter) if request.HasField("filter") else None,
        explain=request.explain,
    )


def parse_document_name(field: str, value: str) -> str:
    """Returns a document's name or id.

    Raises:
        InvalidRequest: It is empty, too long or holds control characters.
    """
    if not 1 <= len(value) <= 1024:
        raise InvalidRequest(field, f"must be 1 to 1,024 characters, has {len(value):,}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidRequest(field, "must not hold control characters")
    return value


def parse_page_size(request: documents_pb2.ListDocumentsRequest) -> int:
    """Returns the page size of a listing of documents, 100 by default.

    Raises:
        InvalidRequest: It is out of range.
    """
    return bounded_int("page_size", request.page_size if request.HasField("page_size") else 100, 1, 1000)


def parse_text_range(request: documents_pb2.GetDocumentRequest) -> tuple[int | None, int | None]:
    """Returns the first character of the wanted text and one past the last; None if the request does not say."""
    return (
        request.start if request.HasField("start") else None,
        request.end if request.HasField("end") else None,
    )


def parse_job_id(value: str) -> JobId:
    """Returns a job's id.

    Raises:
        InvalidRequest: It is not an id.
    """
    if not _JOB_ID.fullmatch(value):
        raise InvalidRequest("job_id", "must be the id of a job, as StartIngest and ListJobs return it")
    return JobId(value)


def parse_job_limit(request: documents_pb2.ListJobsRequest) -> int:
    """Returns the number of jobs to list, 20 by default.

    Raises:
        InvalidRequest: It is out of range.
    """
    return bounded_int("limit", request.limit if request.HasField("limit") else 20, 1, 1000)


def parse_audit_query(request: admin_pb2.ListAuditEventsRequest) -> tuple[RequestId | None, int | None]:
    """Returns the request whose entries to list and the most entries to list; None for all.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    limit = bounded_int("limit", request.limit, 0, 1_000_000) if request.HasField("limit") else None
    return parse_request_id(request.request_id, RequestId("")) or None, limit


def parse_interval(request: admin_pb2.WatchStatusRequest) -> float:
    """Returns the time between two status messages, seconds, 1 by default.

    Raises:
        InvalidRequest: It is out of range.
    """
    if not request.HasField("interval_seconds"):
        return 1.0
    return bounded_float("interval_seconds", request.interval_seconds, 0.1, 3600.0)


def parse_use_model(request: admin_pb2.UseModelRequest) -> tuple[str, str]:
    """Returns a role and the name of its new model.

    Raises:
        InvalidRequest: The name is unusable.
    """
    if not is_model_name(request.name):
        raise InvalidRequest("name", "must be 1 to 64 of a-z, 0-9, ., _ and -, beginning with a letter or digit")
    return request.role, request.name


def parse_move_index(request: admin_pb2.MoveIndexRequest) -> tuple[str, BackendKind]:
    """Returns a collection and its new index backend.

    Raises:
        InvalidRequest: There is no such backend.
    """
    backend = _BACKENDS.get(request.backend)
    if backend is None:
        raise InvalidRequest("backend", "must be INDEX_BACKEND_FAISS or INDEX_BACKEND_MILVUS")
    return request.collection, backend


def parse_format(
    request: rag_pb2.AskRequest | generation_pb2.GenerateRequest, mode: AnswerMode, sampling: Sampling
) -> AnswerFormat | None:
    """Returns the format of the answer, or None.

    Raises:
        InvalidRequest: It does not go with the mode or the sampling, or is too long.
    """
    field = request.WhichOneof("format")
    if field is None:
        return None
    value = request.json_schema if field == "json_schema" else request.regex
    if mode is AnswerMode.QUOTE:
        raise InvalidRequest(field, "needs mode free; in mode quote the documents' sentences are the format")
    if mode is AnswerMode.CITE:
        raise InvalidRequest(field, "needs mode free; in mode cite an answer is sentences that documents support")
    if sampling.stop:
        raise InvalidRequest("sampling.stop", f"would cut the answer short of what {field} asks for; leave one out")
    if not 1 <= len(value) <= MAX_FORMAT_CHARACTERS:
        raise InvalidRequest(field, f"must be 1 to {MAX_FORMAT_CHARACTERS:,} characters, has {len(value):,}")
    return JsonSchema(value) if field == "json_schema" else Regex(value)


def parse_priority(value: rag_pb2.Priority.ValueType) -> Priority:
    """Returns the scheduling class, INTERACTIVE by default.

    Raises:
        InvalidRequest: There is no such class.
    """
    priority = _PRIORITIES.get(value) if value else Priority.INTERACTIVE
    if priority is None:
        raise InvalidRequest("priority", f"{value} is not a priority")
    return priority


def parse_sampling(value: rag_pb2.Sampling) -> Sampling:
    """Returns the sampling parameters.

    Raises:
        InvalidRequest: Names the first unusable field.
    """
    default = Sampling()
    stop = tuple(value.stop)
    if len(stop) > 8:
        raise InvalidRequest("sampling.stop", f"at most 8 texts, has {len(stop)}")
    for text in stop:
        if not 1 <= len(text) <= 128:
            raise InvalidRequest("sampling.stop", "each text must be 1 to 128 characters")
    return Sampling(
        max_tokens=bounded_int(
            "sampling.max_tokens", value.max_tokens if value.HasField("max_tokens") else default.max_tokens, 1, 8192
        ),
        temperature=bounded_float("sampling.temperature", value.temperature, 0.0, 2.0),
        top_k=value.top_k,
        top_p=_top_p(value.top_p) if value.HasField("top_p") else default.top_p,
        repetition_penalty=bounded_float("sampling.repetition_penalty", value.repetition_penalty, 1.0, 10.0)
        if value.HasField("repetition_penalty")
        else default.repetition_penalty,
        seed=value.seed if value.HasField("seed") else None,
        stop=stop,
    )


def _top_p(value: float) -> float:
    if value <= 0:
        raise InvalidRequest("sampling.top_p", "must be greater than 0")
    return bounded_float("sampling.top_p", value, 0.0, 1.0)


def parse_text(field: str, value: str, most: int) -> str:
    """Returns a text without the white space around it.

    Raises:
        InvalidRequest: It is empty, longer than ``most`` characters or holds NUL.
    """
    text = value.strip()
    if not text:
        raise InvalidRequest(field, "must not be empty")
    if len(text) > most:
        raise InvalidRequest(field, f"has {len(text):,} characters, at most {most:,} are allowed")
    if "\x00" in text:
        raise InvalidRequest(field, "must not hold NUL characters")
    return text


def bounded_int(field: str, value: int, least: int, most: int) -> int:
    """Returns the number.

    Raises:
        InvalidRequest: It is out of range.
    """
    if not least <= value <= most:
        raise InvalidRequest(field, f"must be {least:,} to {most:,}, is {value:,}")
    return value


def bounded_float(field: str, value: float, least: float, most: float) -> float:
    """Returns the number.

    Raises:
        InvalidRequest: It is out of range.
    """
    if not least <= value <= most:
        raise InvalidRequest(field, f"must be {least:g} to {most:g}, is {value:g}")
    return value


def ask_to_message(question: str, options: AskOptions) -> rag_pb2.AskRequest:
    """Returns the request of ``Ask``; an option that is None is left to the server.

    Raises:
        InvalidRequest: The question or an option cannot be sent.
    """
    formats = [text for text in (options.json_schema, options.regex) if text is not None]
    if len(formats) > 1:
        raise InvalidRequest("json_schema, regex", "an answer has one format; leave one out")
    mode = AnswerMode.FREE if formats and options.mode is None else options.mode
    request = rag_pb2.AskRequest(
        request_id=sendable("request_id", options.request_id or ""),
        question=sendable("question", question),
        collection=sendable("collection", options.collection),
        mode=rag_pb2.ANSWER_MODE_UNSPECIFIED if mode is None else _MODES.to_number(mode),
        max_sentences=options.max_sentences,
        passages=options.passages,
        sampling=rag_pb2.Sampling(
            stop=[sendable("stop", text) for text in options.stop],
            **{field: getattr(options, field) for field in _SAMPLING_FIELDS},
        ),
        priority=rag_pb2.PRIORITY_UNSPECIFIED if options.priority is None else _PRIORITIES.to_number(options.priority),
        filter=filter_to_message(options.filter),
    )
    if options.json_schema is not None:
        request.json_schema = sendable("json_schema", options.json_schema)
    if options.regex is not None:
        request.regex = sendable("regex", options.regex)
    return request


def search_to_message(query: str, options: SearchOptions) -> rag_pb2.SearchRequest:
    """Returns the request of ``Search``; an option that is None is left to the server.

    Raises:
        InvalidRequest: The query or an option cannot be sent.
    """
    return rag_pb2.SearchRequest(
        query=sendable("query", query),
        collection=sendable("collection", options.collection),
        limit=options.limit,
        rerank=options.rerank,
        filter=filter_to_message(options.filter),
        explain=options.explain,
    )


def move_index_to_message(collection: str, backend: BackendKind) -> admin_pb2.MoveIndexRequest:
    """Returns the request of ``MoveIndex``."""
    return admin_pb2.MoveIndexRequest(collection=collection, backend=_BACKENDS.to_number(backend))


def sendable(field: str, text: str) -> str:
    """Returns a text that protobuf can carry and a server could take.

    Raises:
        InvalidRequest: It is longer than any server takes, or not valid Unicode.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InvalidRequest(
            field, f"{len(text):,} characters are too many; a server takes 8,192 unless configured otherwise"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(field, f"not valid UTF-8 at character {error.start + 1}") from error
    return text
