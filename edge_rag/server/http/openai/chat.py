"""Chat completions in the shape of OpenAI's API.

What a request asks for and the box cannot do is refused by the name of its field, unless it is the field's neutral
value. The last message is the question; earlier ones are not read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from edge_rag.core.answer import (
    AnswerEvent,
    Citation,
    Finished,
    FinishReason,
    PassagesFound,
    TextDelta,
    Unsupported,
    Usage,
)
from edge_rag.core.identity import Identity
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.request_fields import (
    MAX_PASSAGES,
    MAX_SENTENCES,
    RequestLimits,
    bounded_int,
    check_format,
    checked_sampling,
    parse_text,
)
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Query, Sampling
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.documents import document_url
from edge_rag.server.http.exchange import Exchange, event_line
from edge_rag.server.http.fields import check_names, choice, parse_json, typed
from edge_rag.server.http.openai.models import collection_of
from edge_rag.service.ask import ask
from edge_rag.service.call import Call

EXTENSION: Final = "edge_rag"
"""Field of requests and responses with what OpenAI's API has no field for."""

_MOST_MESSAGES: Final = 4096
_MOST_SEED: Final = (1 << 64) - 1

_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
"""Fields that are not supported, with the values that ask for nothing; null is one for each."""

_UNREAD: Final = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort"}
)
"""Fields that change no answer here."""

_READ: Final = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "repetition_penalty",
        "seed",
        "stop",
        "response_format",
        EXTENSION,
    }
)
_READ_EXTENSION: Final = frozenset({"mode", "max_sentences", "passages", "priority"})
_ROLES: Final = ("system", "developer", "user", "assistant")

_FINISH: Final[Mapping[object, str]] = {FinishReason.LENGTH: "length"}
"""OpenAI's finish reasons of ours; ``stop`` for all others."""


_DONE: Final = b"data: [DONE]\n\n"


async def chat(call: Call, exchange: Exchange) -> None:
    """Answers a question, whole or as a stream that begins with the first event of the answer."""
    body = parse_json(exchange.body)
    request = parse_chat(body, call.request_id, call.identity, call.deadline, exchange.requests)
    writer = ChatWriter(request, int(time.time()), exchange.base_url)
    async with ask(call, request.query) as events:
        async for event in events:
            if not request.stream:
                writer.take(event)
                continue
            if not exchange.started:
                await exchange.start_events(call)
            for chunk in writer.chunks(event):
                await exchange.write(event_line(chunk))
        if request.stream:
            await exchange.write(_DONE)
            await exchange.finish()
    if not request.stream:
        await exchange.respond_json(call, writer.completion())


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A valid request for a chat completion.

    Attributes:
        model: Name of the model, as the client wrote it.
        query: The question.
        stream: Whether the answer is streamed.
        include_usage: Whether a stream ends with the usage.
    """

    model: str
    query: Query
    stream: bool
    include_usage: bool


def question_of(data: bytes) -> str:
    """Returns the question of a request's body; empty if it has none that can be read."""
    try:
        return _question(parse_json(data))
    except InvalidRequest:
        return ""


def parse_chat(
    body: Mapping[str, Any], request_id: RequestId, caller: Identity, deadline: float, limits: RequestLimits
) -> ChatRequest:
    """Returns the legal request that a body stands for.

    Args:
        body: The body.
        request_id: Id of the request.
        caller: The caller's identity.
        deadline: ``time.monotonic()`` seconds.
        limits: Bounds and defaults.

    Raises:
        InvalidRequest: Names the first unusable field.
        NotFound: The model is not a collection.
    """
    for name, value in body.items():
        if name not in _READ:
            _check_unsupported(name, value)
    model = typed(body, "model", str)
    if model is None:
        raise InvalidRequest("model", "is missing")
    stream = bool(typed(body, "stream", bool))
    extension = typed(body, EXTENSION, dict) or {}
    check_names(extension, _READ_EXTENSION, EXTENSION)
    sampling = _sampling(body)
    form = _format(body)
    mode = choice(extension, "mode", {each.value: each for each in AnswerMode}, EXTENSION)
    if mode is None:
        mode = AnswerMode.FREE if form is not None else limits.default_mode
    if form is not None:
        check_format("response_format", form, mode, "stop" if sampling.stop else None)
    priority = choice(extension, "priority", {each.name.lower(): each for each in Priority}, EXTENSION)
    sentences = typed(extension, "max_sentences", int, EXTENSION)
    passages = typed(extension, "passages", int, EXTENSION)
    query = Query(
        request_id=request_id,
        question=parse_text("messages", _question(body), limits.question_characters),
        collection=collection_of(model),
        mode=mode,
        max_sentences=bounded_int(
            f"{EXTENSION}.max_sentences", 1 if sentences is None else sentences, 1, MAX_SENTENCES
        ),
        passages=bounded_int(
            f"{EXTENSION}.passages", limits.default_passages if passages is None else passages, 1, MAX_PASSAGES
        ),
        sampling=sampling,
        priority=caller.capped_priority(Priority.INTERACTIVE if priority is None else priority),
        client=caller.name,
        deadline=deadline,
        format=form,
    )
    return ChatRequest(model, query, stream, _include_usage(body, stream))


def _check_unsupported(name: str, value: object) -> None:
    neutral = _NEUTRAL.get(name, ())
    if value is None or name in _UNREAD or any(value == each and type(value) is type(each) for each in neutral):
        return
    if name in _NEUTRAL and isinstance(value, float) and value in neutral:
        return
    raise InvalidRequest(name[:256], "is not supported; leave it out")


def _include_usage(body: Mapping[str, Any], stream: bool) -> bool:
    options = typed(body, "stream_options", dict)
    if options is None:
        return False
    if not stream:
        raise InvalidRequest("stream_options", "needs stream true")
    check_names(options, frozenset({"include_usage", "include_obfuscation"}), "stream_options")
    return bool(typed(options, "include_usage", bool, "stream_options"))


def _sampling(body: Mapping[str, Any]) -> Sampling:
    older, newer = typed(body, "max_tokens", int), typed(body, "max_completion_tokens", int)
    if older is not None and newer is not None and older != newer:
        raise InvalidRequest("max_completion_tokens", "is not max_tokens; leave one out")
    named = {
        "max_tokens": newer if older is None else older,
        "temperature": typed(body, "temperature", float),
        "top_p": typed(body, "top_p", float),
        "top_k": typed(body, "top_k", int),
        "repetition_penalty": typed(body, "repetition_penalty", float),
        "seed": typed(body, "seed", int),
    }
    for field, most in (("seed", _MOST_SEED), ("top_k", (1 << 31) - 1)):
        if isinstance(number := named[field], int):
            bounded_int(field, number, 0, most)
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    return checked_sampling(replace(Sampling(), stop=_stop(body), **given))


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("stop", "must be a string or an array of strings")
    return tuple(texts)


def _format(body: Mapping[str, Any]) -> AnswerFormat | None:
    wanted = typed(body, "response_format", dict)
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return JsonSchema('{"type":"object"}')
    if wanted.get("type") != "json_schema":
        raise InvalidRequest("response_format.type", "must be text, json_object or json_schema")
    named = typed(wanted, "json_schema", dict, "response_format") or {}
    schema = typed(named, "schema", dict, "response_format.json_schema")
    if schema is None:
        raise InvalidRequest("response_format.json_schema.schema", "is missing")
    return JsonSchema(json.dumps(schema, ensure_ascii=False))


def _question(body: Mapping[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages", "must be an array of at least one message")
    bounded_int("messages", len(messages), 1, _MOST_MESSAGES)
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise InvalidRequest(f"messages[{index}].role", f"must be one of {', '.join(_ROLES)}")
    last = len(messages) - 1
    if messages[last]["role"] != "user":
        raise InvalidRequest(f"messages[{last}].role", "must be user: the last message is the question")
    return _content(f"messages[{last}].content", messages[last].get("content"))


def _content(field: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidRequest(field, "must be a string or an array of parts")
    texts: list[str] = []
    for index, part in enumerate(value):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise InvalidRequest(f"{field}[{index}]", "must be a part of type text; others are not supported")
        texts.append(text)
    return "\n".join(texts)


class ChatWriter:
    """Writes the events of one answer as a chat completion, whole or as chunks.

    Args:
        request: The request.
        created: Unix time, seconds.
        base_url: Where the client reached the server.
    """

    def __init__(self, request: ChatRequest, created: int, base_url: str) -> None:
        self._request = request
        self._created = created
        self._base_url = base_url
        self._texts: list[str] = []
        self._passages: tuple[RankedPassage, ...] = ()
        self._annotations: list[dict[str, Any]] = []
        self._extension: dict[str, Any] = {}
        self._unsupported: list[dict[str, int]] = []
        self._finished: Finished | None = None

    def take(self, event: AnswerEvent) -> None:
        """Takes an event for ``completion``."""
        match event:
            case TextDelta():
                self._texts.append(event.text)
            case PassagesFound():
                self._passages = event.passages
                self._extension["evidence"] = event.evidence
            case Citation():
                self._annotations.append(self._annotation(event))
            case Unsupported():
                self._unsupported.append({"start_index": event.answer_start, "end_index": event.answer_end})
            case Finished():
                self._finished = event
                self._extension["found"] = event.reason is not FinishReason.NOT_FOUND
                self._extension["unsupported"] = self._unsupported

    def chunks(self, event: AnswerEvent) -> Iterator[dict[str, Any]]:
        """Takes an event; yields what is sent of it in a stream: citations once, after all text."""
        self.take(event)
        match event:
            case PassagesFound():
                yield self._chunk({"role": "assistant", "content": ""})
            case TextDelta():
                yield self._chunk({"content": event.text})
            case Finished():
                if self._annotations:
                    yield self._chunk({"annotations": self._annotations})
                yield {**self._chunk({}, self._finish_reason(event)), EXTENSION: self._extension}
                if self._request.include_usage:
                    yield {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(event.usage)}

    def completion(self) -> dict[str, Any]:
        """Returns the whole completion; the last event must have been taken."""
        assert self._finished is not None, "the answer has not ended"
        message = {
            "role": "assistant",
            "content": "".join(self._texts),
            "refusal": None,
            "annotations": self._annotations,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish_reason(self._finished),
        }
        usage = _usage(self._finished.usage)
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage, EXTENSION: self._extension}

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self._request.query.request_id}"
        return {"id": name, "object": kind, "created": self._created, "model": self._request.model}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self._request.include_usage else chunk

    def _finish_reason(self, finished: Finished) -> str:
        return _FINISH.get(finished.reason, "stop")

    def _annotation(self, citation: Citation) -> dict[str, Any]:
        document_id = self._passages[citation.passage].passage.document_id
        collection = self._request.query.collection
        page = "" if citation.page is None else f", page {citation.page}"
        return {
            "type": "url_citation",
            "url_citation": {
                "url": document_url(self._base_url, document_id, collection, citation.start, citation.end),
                "title": f"{citation.document}{page}",
                "start_index": citation.answer_start,
                "end_index": citation.answer_end,
                EXTENSION: {
                    "document_id": document_id,
                    "document": citation.document,
                    "page": citation.page,
                    "start": citation.start,
                    "end": citation.end,
                    "text": citation.text,
                    "language": citation.language,
                },
            },
        }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }
