"""Chat completions in the shape of OpenAI's API.

To a collection the last message is the question, which may leave something to earlier ones; the language model reads
all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edge_rag.core.answer import Finished, TextDelta, Usage
from edge_rag.core.generation import CompletionEvent, CompletionRequest, FunctionCall
from edge_rag.core.limits.asker import Asker
from edge_rag.core.query import Query
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import Exchange, event_line
from edge_rag.server.http.fields import check_names, check_supported, parse_json, typed
from edge_rag.server.http.openai.answers import Answer, send_answer
from edge_rag.server.http.openai.functions import EarlierCalls
from edge_rag.server.http.openai.requests import (
    EXTENSION,
    UNREAD,
    Wanted,
    last_question,
    parse_format,
    parse_model,
    parse_sampling,
    parse_wanted,
    text_of,
)
from edge_rag.service.ask import language_model
from edge_rag.service.call import Call

_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
"""Fields that are not supported, with the values that ask for nothing; null is one for each."""

_NO_TOOLS: Final[Mapping[str, tuple[object, ...]]] = {"tools": ([],), "tool_choice": ("none", "auto")}
"""What asks for no tools, which a collection does not have."""

_READ: Final = UNREAD | {
    "tools",
    "tool_choice",
    "reasoning_effort",
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
_TEXT_TYPES: Final = ("text",)


async def chat(call: Call, exchange: Exchange) -> None:
    body = parse_json(exchange.body)
    request = parse_chat(body, call.asker(exchange.requests), language_model(call))
    writer = ChatWriter(request, int(time.time()), exchange.base_url)
    await send_answer(call, exchange, request.query, request.stream, writer)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A valid request for a chat completion.

    Attributes:
        model: Name of the model, as the client wrote it.
        query: The question, or the conversation if the model is the language model.
        stream: Whether the answer is streamed.
        include_usage: Whether a stream ends with the usage.
        sources: Whether a stream has events of the cited documents for Open WebUI.
    """

    model: str
    query: Query | CompletionRequest
    stream: bool
    include_usage: bool
    sources: bool = False


def question_of(data: bytes) -> str:
    try:
        return last_question(parse_json(data).get("messages"), "messages", _TEXT_TYPES)
    except InvalidRequest:
        return ""


def parse_chat(body: Mapping[str, Any], asker: Asker, language_model: str | None) -> ChatRequest:
    """Returns the legal request that a body stands for."""
    check_supported(body, _READ, _NEUTRAL)
    model = parse_model(body)
    stream = bool(typed(body, "stream", bool))
    sampling = parse_sampling(body, _max_tokens(body))
    form = parse_format(typed(body, "response_format", dict), "response_format", "json_schema")
    messages, alone = body.get("messages"), model == language_model
    if alone:
        messages = _with_calls(messages)
    else:
        check_supported({name: body.get(name) for name in _NO_TOOLS}, (), _NO_TOOLS)
    wanted = Wanted(model, messages, "messages", _TEXT_TYPES, sampling, form, "response_format", "function")
    query = parse_wanted(body, wanted, asker, alone=alone)
    sources = typed(typed(body, EXTENSION, dict) or {}, "sources", bool, EXTENSION)
    return ChatRequest(model, query, stream, _include_usage(body, stream), bool(sources))


def _with_calls(messages: object) -> object:
    """Returns messages in which calls of functions and their results are messages of the model and of the user."""
    if not isinstance(messages, list):
        return messages
    found: list[object] = []
    earlier = EarlierCalls()
    for index, message in enumerate(messages):
        field = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        calls = typed(message, "tool_calls", list, field) if role == "assistant" else None
        if role == "tool":
            output = text_of(f"{field}.content", message.get("content"), _TEXT_TYPES)
            found.append(earlier.result(message.get("tool_call_id"), output, f"{field}.tool_call_id"))
            continue
        if not calls or message.get("content"):
            found.append(message)
        for place, one in enumerate(calls or ()):
            call = (one.get("function") if isinstance(one, dict) else None) or {}
            call_id = one.get("id") if isinstance(one, dict) else None
            found.append(earlier.call(call, call_id, f"{field}.tool_calls[{place}].function"))
    return found


def _include_usage(body: Mapping[str, Any], stream: bool) -> bool:
    options = typed(body, "stream_options", dict)
    if options is None:
        return False
    if not stream:
        raise InvalidRequest("stream_options", "needs stream true")
    check_names(options, frozenset({"include_usage", "include_obfuscation"}), "stream_options")
    return bool(typed(options, "include_usage", bool, "stream_options"))


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    older, newer = typed(body, "max_tokens", int), typed(body, "max_completion_tokens", int)
    if older is not None and newer is not None and older != newer:
        raise InvalidRequest("max_completion_tokens", "is not max_tokens; leave one out")
    return newer if older is None else older


class ChatWriter:
    """Writes the events of one answer as a chat completion, whole or as chunks.

    Args:
        created: Unix time, seconds.
    """

    def __init__(self, request: ChatRequest, created: int, base_url: str) -> None:
        self._request = request
        self._created = created
        query = request.query
        self._answer = Answer(query.collection if isinstance(query, Query) else "", base_url)
        self._begun = False

    def events(self, event: CompletionEvent) -> Iterator[dict[str, Any]]:
        """Takes an event; yields its chunks: citations once, after all text."""
        self._answer.take(event)
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        match event:
            case FunctionCall():
                yield self._chunk({"tool_calls": [{"index": 0, **each} for each in self._tool_calls()]})
            case TextDelta():
                yield self._chunk({"content": event.text})
            case Finished():
                if annotations := self._annotations():
                    yield self._chunk({"annotations": annotations})
                if self._request.sources:
                    for source in self._answer.sources():
                        empty = {**self._head("chat.completion.chunk"), "choices": []}
                        yield {**empty, "event": {"type": "source", "data": source}}
                yield {**self._chunk({}, self._finish_reason()), **self._extension()}
                if self._request.include_usage:
                    yield {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(event.usage)}

    def line(self, event: Mapping[str, Any]) -> bytes:
        return event_line(event)

    def failed(self, error: Mapping[str, Any]) -> bytes:
        return event_line({"error": error})

    def whole(self) -> dict[str, Any]:
        """Returns the whole completion; the last event must have been taken."""
        answer = self._answer
        message = {
            "role": "assistant",
            "content": answer.text if answer.call is None else None,
            "refusal": None,
            "annotations": self._annotations(),
            **({} if answer.call is None else {"tool_calls": self._tool_calls()}),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        usage = _usage(answer.end.usage)
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage, **self._extension()}

    def _extension(self) -> dict[str, Any]:
        return {EXTENSION: self._answer.extension} if self._answer.extension else {}

    def _annotations(self) -> list[dict[str, Any]]:
        answer = self._answer
        return [{"type": "url_citation", "url_citation": answer.url_citation(each)} for each in answer.citations]

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self._request.query.request_id}"
        return {"id": name, "object": kind, "created": self._created, "model": self._request.model}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self._request.include_usage else chunk

    def _finish_reason(self) -> str:
        if self._answer.call is not None:
            return "tool_calls"
        return "length" if self._answer.cut else "stop"

    def _tool_calls(self) -> list[dict[str, Any]]:
        call = self._answer.call
        if call is None:
            return []
        name = f"call_{self._request.query.request_id}"
        return [{"id": name, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }
