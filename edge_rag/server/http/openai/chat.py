"""Chat completions in the shape of OpenAI's API.

To a collection the last message is the question, and earlier ones are not read; the language model reads all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edge_rag.core.answer import AnswerEvent, Finished, TextDelta, Usage
from edge_rag.core.generation import CompletionRequest
from edge_rag.core.query import Query
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import Exchange, event_line
from edge_rag.server.http.fields import check_names, parse_json, typed
from edge_rag.server.http.openai.answers import (
    EXTENSION,
    UNREAD,
    Answer,
    Caller,
    Wanted,
    answer_events,
    caller_of,
    check_supported,
    last_question,
    parse_completion,
    parse_conversation,
    parse_format,
    parse_model,
    parse_query,
    parse_sampling,
)
from edge_rag.service.call import Call

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

_READ: Final = UNREAD | {
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
_DONE: Final = b"data: [DONE]\n\n"


async def chat(call: Call, exchange: Exchange) -> None:
    """Answers a question, whole or as a stream that begins with the first event of the answer."""
    body = parse_json(exchange.body)
    request = parse_chat(body, caller_of(call, exchange))
    writer = ChatWriter(request, int(time.time()), exchange.base_url)
    async with answer_events(call, request.query) as events:
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
    """Returns the question of a request's body; empty if it has none that can be read."""
    try:
        return last_question(parse_json(data).get("messages"), "messages", _TEXT_TYPES)
    except InvalidRequest:
        return ""


def parse_chat(body: Mapping[str, Any], caller: Caller) -> ChatRequest:
    """Returns the legal request that a body stands for.

    Raises:
        InvalidRequest: Names the first unusable field.
        NotFound: The model is neither a collection nor the language model.
    """
    check_supported(body, _READ, _NEUTRAL)
    model = parse_model(body)
    stream = bool(typed(body, "stream", bool))
    sampling = parse_sampling(body, _max_tokens(body))
    form = parse_format(typed(body, "response_format", dict), "response_format", "json_schema")
    wanted, messages = Wanted(sampling, form, "response_format"), body.get("messages")
    query: Query | CompletionRequest
    if model == caller.language_model:
        query = parse_completion(body, parse_conversation(messages, "messages", _TEXT_TYPES), wanted, caller)
    else:
        question = "messages", last_question(messages, "messages", _TEXT_TYPES)
        query = parse_query(body, question, model, wanted, caller)
    sources = typed(typed(body, EXTENSION, dict) or {}, "sources", bool, EXTENSION)
    return ChatRequest(
        model, query, stream, _include_usage(body, stream), caller.sources if sources is None else sources
    )


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
        request: The request.
        created: Unix time, seconds.
        base_url: Where the client reached the server.
    """

    def __init__(self, request: ChatRequest, created: int, base_url: str) -> None:
        self._request = request
        self._created = created
        query = request.query
        self._answer = Answer(query.collection if isinstance(query, Query) else "", base_url)
        self._begun = False

    def take(self, event: AnswerEvent) -> None:
        """Takes an event for ``completion``."""
        self._answer.take(event)

    def chunks(self, event: AnswerEvent) -> Iterator[dict[str, Any]]:
        """Takes an event; yields what is sent of it in a stream: citations once, after all text."""
        self.take(event)
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        match event:
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

    def completion(self) -> dict[str, Any]:
        """Returns the whole completion; the last event must have been taken."""
        answer = self._answer
        message = {
            "role": "assistant",
            "content": answer.text,
            "refusal": None,
            "annotations": self._annotations(),
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
        return "length" if self._answer.cut else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.generated_tokens,
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }
