"""From options to protobuf. What is left out takes the server's default."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.api.v1 import rag_pb2
from edge_rag.client.failures import CallStatus, ClientError
from edge_rag.client.filter_messages import filter_message
from edge_rag.core.documents.filters import Filter
from edge_rag.core.query import AnswerMode, Priority

LONGEST_QUESTION_CHARACTERS = 1_000_000
"""No server can be configured to take more; a longer one would only break gRPC's message limit."""

_MODES = {
    None: rag_pb2.ANSWER_MODE_UNSPECIFIED,
    AnswerMode.QUOTE: rag_pb2.ANSWER_MODE_QUOTE,
    AnswerMode.CITE: rag_pb2.ANSWER_MODE_CITE,
    AnswerMode.FREE: rag_pb2.ANSWER_MODE_FREE,
}
_PRIORITIES = {
    None: rag_pb2.PRIORITY_UNSPECIFIED,
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}


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


def ask_request(question: str, options: AskOptions) -> rag_pb2.AskRequest:
    """Builds the request of ``Ask``.

    Raises:
        ClientError: INVALID_ARGUMENT, the question could not even be sent.
    """
    formats = [text for text in (options.json_schema, options.regex) if text is not None]
    if len(formats) > 1:
        raise ClientError(CallStatus.INVALID_ARGUMENT, "json_schema, regex: an answer has one format; leave one out")
    mode = AnswerMode.FREE if formats and options.mode is None else options.mode
    request = rag_pb2.AskRequest(
        request_id=sendable("request_id", options.request_id or ""),
        question=sendable("question", question),
        collection=sendable("collection", options.collection),
        mode=_MODES[mode],
        max_sentences=options.max_sentences,
        passages=options.passages,
        sampling=rag_pb2.Sampling(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            repetition_penalty=options.repetition_penalty,
            seed=options.seed,
            stop=[sendable("stop", text) for text in options.stop],
        ),
        priority=_PRIORITIES[options.priority],
        filter=filter_message(options.filter),
    )
    if options.json_schema is not None:
        request.json_schema = sendable("json_schema", options.json_schema)
    if options.regex is not None:
        request.regex = sendable("regex", options.regex)
    return request


def search_request(query: str, options: SearchOptions) -> rag_pb2.SearchRequest:
    """Builds the request of ``Search``.

    Raises:
        ClientError: INVALID_ARGUMENT, the query could not even be sent.
    """
    return rag_pb2.SearchRequest(
        query=sendable("query", query),
        collection=sendable("collection", options.collection),
        limit=options.limit,
        rerank=options.rerank,
        filter=filter_message(options.filter),
        explain=options.explain,
    )


def sendable(field: str, text: str) -> str:
    """Returns the text if protobuf can carry it and a server could take it.

    Raises:
        ClientError: INVALID_ARGUMENT, names the field and what is wrong.
    """
    if len(text) > LONGEST_QUESTION_CHARACTERS:
        raise ClientError(
            CallStatus.INVALID_ARGUMENT,
            f"{field}: {len(text):,} characters are too many; a server takes 8,192 unless configured otherwise",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ClientError(
            CallStatus.INVALID_ARGUMENT, f"{field}: not valid UTF-8 at character {error.start + 1}"
        ) from error
    return text
