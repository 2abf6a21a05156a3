"""Chat completions, to and from JSON in the shape of OpenAI's API; pure.

What a request asks for and the box cannot do is refused by the name of its field, unless it is the field's neutral
value. The last message is the question; earlier ones are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

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
    parse_collection_name,
    parse_text,
)
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Query, Sampling
from edge_rag.errors import InvalidRequest, NotFound, UndecodableMessage

MODEL_PREFIX: Final = "edge-rag/"
"""A collection is a model of this prefix and its name."""

EXTENSION: Final = "edge_rag"
"""Field of requests and responses with what OpenAI's API has no field for."""

_MOST_MESSAGES: Final = 4096
_MOST_SEED: Final = (1 << 64) - 1
_FLOAT_BOUND: Final = 1e9

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

_T = TypeVar("_T")
_EnumT = TypeVar("_EnumT", bound=Enum)


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


def parse_json(data: bytes) -> dict[str, Any]:
    """Returns the JSON object that a request's body is.

    Raises:
        UndecodableMessage: It is none.
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()  # halves of surrogate pairs are no text
    except (ValueError, RecursionError):
        raise UndecodableMessage from None
    if not isinstance(value, dict):
        raise UndecodableMessage
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def question_of(data: bytes) -> str:
    """Returns the question of a request's body; empty if it has none that can be read."""
    try:
        return _question(parse_json(data))
    except InvalidRequest:
        return ""


def collection_of(model: str) -> str:
    """Returns the collection that a model stands for.

    Raises:
        NotFound: It stands for none.
    """
    if not model.startswith(MODEL_PREFIX):
        raise NotFound(f"model {model[:256]!r} does not exist; a collection NAME is the model {MODEL_PREFIX}NAME")
    return parse_collection_name(model.removeprefix(MODEL_PREFIX), "model")


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
    model = _typed(body, "model", str)
    if model is None:
        raise InvalidRequest("model", "is missing")
    stream = bool(_typed(body, "stream", bool))
    extension = _typed(body, EXTENSION, dict) or {}
    _check_names(extension, _READ_EXTENSION, EXTENSION)
    sampling = _sampling(body)
    form = _format(body)
    mode = _enum(extension, "mode", AnswerMode, {each.value: each for each in AnswerMode})
    if mode is None:
        mode = AnswerMode.FREE if form is not None else limits.default_mode
    if form is not None:
        check_format("response_format", form, mode, "stop" if sampling.stop else None)
    priority = _enum(extension, "priority", Priority, {each.name.lower(): each for each in Priority})
    sentences = _typed(extension, "max_sentences", int, EXTENSION)
    passages = _typed(extension, "passages", int, EXTENSION)
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


def _check_names(value: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    for name in value:
        if name not in known:
            raise InvalidRequest(f"{prefix}.{name[:256]}", "is not supported; leave it out")


def _typed(value: Mapping[str, Any], name: str, kind: type[_T], prefix: str = "") -> _T | None:
    """Returns a field; None if it is absent or null. A whole number is a float too, and a boolean is no number."""
    found = value.get(name)
    if found is None:
        return None
    field = f"{prefix}.{name}" if prefix else name
    if kind is float and type(found) is int and abs(found) <= _FLOAT_BOUND:
        found = float(found)
    if type(found) is not kind:
        names = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object"}
        raise InvalidRequest(field, f"must be {names.get(kind, 'an array')}")
    return found


def _enum(value: Mapping[str, Any], name: str, kind: type[_EnumT], by_name: Mapping[str, _EnumT]) -> _EnumT | None:
    text = _typed(value, name, str, EXTENSION)
    if text is None:
        return None
    if text not in by_name:
        raise InvalidRequest(f"{EXTENSION}.{name}", f"must be one of {', '.join(by_name)}")
    return by_name[text]


def _include_usage(body: Mapping[str, Any], stream: bool) -> bool:
    options = _typed(body, "stream_options", dict)
    if options is None:
        return False
    if not stream:
        raise InvalidRequest("stream_options", "needs stream true")
    _check_names(options, frozenset({"include_usage", "include_obfuscation"}), "stream_options")
    return bool(_typed(options, "include_usage", bool, "stream_options"))


def _sampling(body: Mapping[str, Any]) -> Sampling:
    older, newer = _typed(body, "max_tokens", int), _typed(body, "max_completion_tokens", int)
    if older is not None and newer is not None and older != newer:
        raise InvalidRequest("max_completion_tokens", "is not max_tokens; leave one out")
    named = {
        "max_tokens": newer if older is None else older,
        "temperature": _typed(body, "temperature", float),
        "top_p": _typed(body, "top_p", float),
        "top_k": _typed(body, "top_k", int),
        "repetition_penalty": _typed(body, "repetition_penalty", float),
        "seed": _typed(body, "seed", int),
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
    wanted = _typed(body, "response_format", dict)
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return JsonSchema('{"type":"object"}')
    if wanted.get("type") != "json_schema":
        raise InvalidRequest("response_format.type", "must be text, json_object or json_schema")
    named = _typed(wanted, "json_schema", dict, "response_format") or {}
    schema = _typed(named, "schema", dict, "response_format.json_schema")
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


def document_url(base_url: str, document_id: str, collection: str, start: int, end: int) -> str:
    """Returns the URL of a range of a document's text."""
    where = urlencode({"collection": collection, "start": start, "end": end})
    return f"{base_url}/documents/{quote(document_id, safe='')}?{where}"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }
