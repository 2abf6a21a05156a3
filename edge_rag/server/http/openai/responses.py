"""Responses in the shape of OpenAI's API, as Open Responses specifies it.

A collection searches its documents for each question, so an answer is a ``file_search_call`` and a message; the
language model alone writes a message. Nothing is kept: there are no earlier responses to refer to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edge_rag.core.address import document_url
from edge_rag.core.answer import Citation, Finished, TextDelta, Usage
from edge_rag.core.documents.filters import Filter
from edge_rag.core.generation import CompletionEvent, CompletionRequest, FunctionCall
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import MAX_PASSAGES, MAX_TOKENS, bounded_int
from edge_rag.core.passage import Passage, relevances
from edge_rag.core.query import Query
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import Exchange, event_line
from edge_rag.server.http.fields import check_names, check_supported, parse_json, typed
from edge_rag.server.http.openai.answers import DONE, Answer, send_answer
from edge_rag.server.http.openai.filters import attributes_of, parse_filters
from edge_rag.server.http.openai.functions import EarlierCalls
from edge_rag.server.http.openai.models import collection_of
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
    "background": (False,),
    "frequency_penalty": (0,),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "service_tier": ("auto", "default"),
    "store": (True, False),
    "stream_options": ({}, {"include_obfuscation": False}, {"include_obfuscation": True}),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields that are not supported, with the values that ask for nothing; null is one for each."""

_READ: Final = UNREAD | {
    "reasoning",
    "model",
    "input",
    "instructions",
    "include",
    "stream",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "text",
    "tools",
    "tool_choice",
    EXTENSION,
}
_RESULTS: Final = "file_search_call.results"
_INCLUDED: Final = (_RESULTS, "reasoning.encrypted_content")
"""Optional parts of a response; there is no reasoning here."""

_TEXT_TYPES: Final = ("input_text", "output_text", "text")
_SEARCH_CHOICES: Final = (None, "auto", "required", {"type": "file_search"})
_UNREAD_ITEMS: Final = ("file_search_call", "reasoning")
"""Items besides messages that a response has, so that clients send them back with the next question."""

_MOST_RESULTS: Final = 50
_MOST_TOOL_CALLS: Final = 1 << 31
_RANKERS: Final = (None, "auto", "default-2024-11-15")


async def create_response(call: Call, exchange: Exchange) -> None:
    request = parse_response(parse_json(exchange.body), call.asker(exchange.requests), language_model(call))
    writer = ResponseWriter(request, int(time.time()), exchange.base_url)
    await send_answer(call, exchange, request.query, request.stream, writer)


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A valid request for a response.

    Attributes:
        query: The question, or the conversation if the model is the language model.
        stream: Whether the response is streamed.
        results: Whether the passages are part of it.
        echoed: Fields of the request that the response repeats.
    """

    query: Query | CompletionRequest
    stream: bool
    results: bool
    echoed: Mapping[str, Any]


def response_question_of(data: bytes) -> str:
    try:
        return last_question(_messages(parse_json(data), True), "input", _TEXT_TYPES)
    except InvalidRequest:
        return ""


def parse_response(body: Mapping[str, Any], asker: Asker, language_model: str | None) -> ResponseRequest:
    """Returns the legal request that a body stands for."""
    check_supported(body, _READ, _NEUTRAL)
    model = parse_model(body)
    reasoning = typed(body, "reasoning", dict) or {}
    check_names(reasoning, frozenset({"effort", "summary", "generate_summary"}), "reasoning")
    text = typed(body, "text", dict) or {}
    check_supported(text, {"format"}, {"verbosity": ("medium",)}, "text")
    shown_format = typed(text, "format", dict, "text") or {"type": "text"}
    most = typed(body, "max_output_tokens", int)
    if most is not None:
        bounded_int("max_output_tokens", most, 1, MAX_TOKENS)
    calls = typed(body, "max_tool_calls", int)
    if calls is not None:
        bounded_int("max_tool_calls", calls, 1, _MOST_TOOL_CALLS)
    sampling = parse_sampling({name: body.get(name) for name in ("temperature", "top_p")}, most)
    alone = model == language_model
    form, instructions = parse_format(shown_format, "text.format"), typed(body, "instructions", str)
    messages = _messages(body, alone)
    tools, passages, only = ([], None, None) if alone else _tools(body, collection_of(model))
    wanted = Wanted(
        model,
        messages,
        "input",
        _TEXT_TYPES,
        sampling,
        form,
        "text.format",
        instructions=instructions or "",
        passages=passages,
        filter=only,
    )
    query = parse_wanted(body, wanted, asker, alone=alone)
    if alone:
        tools = [_shown_function(tool) for tool in body.get("tools") or []]
    echoed = {
        "model": model,
        "instructions": instructions,
        "max_output_tokens": most,
        "max_tool_calls": calls,
        "metadata": typed(body, "metadata", dict) or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "prompt_cache_key": typed(body, "prompt_cache_key", str),
        "safety_identifier": typed(body, "safety_identifier", str),
        "temperature": sampling.temperature,
        "text": {"format": shown_format, "verbosity": "medium"},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": tools,
        "top_p": sampling.top_p,
    }
    return ResponseRequest(query, bool(typed(body, "stream", bool)), _RESULTS in _include(body), echoed)


def _include(body: Mapping[str, Any]) -> list[str]:
    included: list[str] = typed(body, "include", list) or []
    for index, name in enumerate(included):
        if name not in _INCLUDED:
            raise InvalidRequest(f"include[{index}]", f"must be {_RESULTS}")
    return included


def _shown_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": None, "parameters": None, "strict": True, **tool}


def _tools(body: Mapping[str, Any], collection: str) -> tuple[list[dict[str, Any]], int | None, Filter | None]:
    """Returns the tools of a collection for the response, the most passages that they allow, and their filter."""
    if body.get("tool_choice") not in _SEARCH_CHOICES:
        raise InvalidRequest("tool_choice", "must be auto or required: a collection searches for each question")
    tools = typed(body, "tools", list) or []
    most: int | None = None
    only: Filter | None = None
    for index, tool in enumerate(tools):
        field = f"tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") != "file_search":
            raise InvalidRequest(f"{field}.type", "must be file_search; others are not supported by a collection")
        if index:
            raise InvalidRequest(field, "is a second file_search; leave it out")
        names = {"type", "vector_store_ids", "filters", "max_num_results", "ranking_options"}
        check_names(tool, frozenset(names), field)
        if (typed(tool, "vector_store_ids", list, field) or [collection]) != [collection]:
            raise InvalidRequest(f"{field}.vector_store_ids", f"must be [{collection!r}], the model's collection")
        only = parse_filters(tool.get("filters"), f"{field}.filters")
        _check_ranking(typed(tool, "ranking_options", dict, field) or {}, f"{field}.ranking_options")
        results = typed(tool, "max_num_results", int, field)
        if results is not None:
            most = min(bounded_int(f"{field}.max_num_results", results, 1, _MOST_RESULTS), MAX_PASSAGES)
    return tools, most, only


def _check_ranking(options: Mapping[str, Any], field: str) -> None:
    neutral = {"ranker": _RANKERS, "score_threshold": (0,)}
    check_supported(options, (), neutral, field)


def _messages(body: Mapping[str, Any], functions: bool) -> object:
    """Returns the messages of the input; with functions, calls and their results are messages, too."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        return given
    messages = []
    earlier = EarlierCalls()
    for index, item in enumerate(given):
        field = f"input[{index}]"
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            messages.append(item)
        elif kind == "function_call" and functions:
            messages.append(earlier.call(item, item.get("call_id"), field))
        elif kind == "function_call_output" and functions:
            output = text_of(f"{field}.output", item.get("output"), _TEXT_TYPES)
            messages.append(earlier.result(item.get("call_id"), output, f"{field}.call_id"))
        elif kind not in _UNREAD_ITEMS or index == len(given) - 1:
            raise InvalidRequest(f"{field}.type", "must be message; the last one is the question")
    return messages


class ResponseWriter:
    """Writes the events of one answer as a response, whole or as a stream.

    Args:
        created: Unix time, seconds.
    """

    def __init__(self, request: ResponseRequest, created: int, base_url: str) -> None:
        self._request = request
        self._created = created
        query = request.query
        self._question = query.question if isinstance(query, Query) else None
        self._answer = Answer(query.collection if isinstance(query, Query) else "", base_url)
        self._events = 0
        self._opened = False
        self._annotations: list[dict[str, Any]] = []

    def events(self, event: CompletionEvent) -> Iterator[dict[str, Any]]:
        """Takes an event; yields its chunks for a stream."""
        self._answer.take(event)
        if not self._events:
            yield from self._begin()
        match event:
            case FunctionCall():
                yield from self._called(event)
            case TextDelta():
                yield from self._open_message()
                yield self._of_text("response.output_text.delta", delta=event.text, logprobs=[])
            case Citation():
                for annotation in self._annotated(event):
                    place = len(self._annotations)
                    self._annotations.append(annotation)
                    yield self._of_text(
                        "response.output_text.annotation.added", annotation_index=place, annotation=annotation
                    )
            case Finished():
                yield from self._end()

    def whole(self) -> dict[str, Any]:
        """Returns the whole response; the last event must have been taken."""
        cut = self._answer.cut
        status = "incomplete" if cut else "completed"
        extension = {EXTENSION: self._answer.extension} if self._answer.extension else {}
        return {
            **self._resource(status, [*self._searches(), self._item(status)]),
            "completed_at": None if cut else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": _usage(self._answer.end.usage),
            **extension,
        }

    def line(self, event: Mapping[str, Any]) -> bytes:
        return event_line(event, event["type"])

    def failed(self, error: Mapping[str, Any]) -> bytes:
        code = "rate_limit_exceeded" if error["type"] == "rate_limit_error" else "server_error"
        output = [*self._searches(), self._message("incomplete")]
        resource = self._resource("failed", output)
        failure = {**resource, "error": {"code": code, "message": error["message"]}}
        return self.line(self._event("response.failed", response=failure)) + DONE

    def _begin(self) -> Iterator[dict[str, Any]]:
        yield self._event("response.created", response=self._resource("in_progress", []))
        yield self._event("response.in_progress", response=self._resource("in_progress", []))
        for search in self._searches():
            started = {**search, "status": "in_progress", "results": None}
            yield self._event("response.output_item.added", output_index=0, item=started)
            for step in ("in_progress", "searching", "completed"):
                yield self._event(f"response.file_search_call.{step}", output_index=0, item_id=search["id"])
            yield self._event("response.output_item.done", output_index=0, item=search)

    def _open_message(self) -> Iterator[dict[str, Any]]:
        if self._opened:
            return
        self._opened = True
        message = {**self._message("in_progress"), "content": []}
        yield self._event("response.output_item.added", output_index=self._place, item=message)
        yield self._of_text("response.content_part.added", part=_part("", []))

    def _end(self) -> Iterator[dict[str, Any]]:
        done = self.whole()
        if self._answer.call is not None:
            yield self._event("response.completed", response=done)
            return
        yield from self._open_message()
        message = done["output"][self._place]
        yield self._of_text("response.output_text.done", text=self._answer.text, logprobs=[])
        yield self._of_text("response.content_part.done", part=message["content"][0])
        yield self._event("response.output_item.done", output_index=self._place, item=message)
        yield self._event(f"response.{done['status']}", response=done)

    def _called(self, call: FunctionCall) -> Iterator[dict[str, Any]]:
        item, place = self._item("completed"), {"output_index": self._place}
        started = {**item, "status": "in_progress", "arguments": ""}
        of_call = {**place, "item_id": item["id"]}
        yield self._event("response.output_item.added", **place, item=started)
        yield self._event("response.function_call_arguments.delta", **of_call, delta=call.arguments)
        done = {"name": call.name, "arguments": call.arguments}
        yield self._event("response.function_call_arguments.done", **of_call, **done)
        yield self._event("response.output_item.done", **place, item=item)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        number = self._events
        self._events += 1
        return {"type": kind, "sequence_number": number, **fields}

    def _of_text(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self._event(kind, item_id=self._id("msg"), output_index=self._place, content_index=0, **fields)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._request.query.request_id}"

    @property
    def _place(self) -> int:
        return 0 if self._question is None else 1

    def _resource(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id("resp"),
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "previous_response_id": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "top_logprobs": 0,
            "truncation": "disabled",
            "usage": None,
            **self._request.echoed,
            "output": output,
        }

    def _searches(self) -> Iterator[dict[str, Any]]:
        """Yields the search, unless the model is the language model."""
        if self._question is None:
            return
        found = self._results() if self._request.results else None
        yield {
            "type": "file_search_call",
            "id": self._id("fs"),
            "status": "completed",
            "queries": [self._question],
            "results": found,
        }

    def _results(self) -> list[dict[str, Any]]:
        answer = self._answer
        scores = relevances(answer.passages, answer.evidence)
        return [self._result(ranked.passage, score) for ranked, score in zip(answer.passages, scores, strict=True)]

    def _result(self, passage: Passage, score: float) -> dict[str, Any]:
        answer = self._answer
        where = passage.document_id, answer.collection, passage.start, passage.end, passage.page
        return {
            "file_id": passage.document_id,
            "filename": passage.document,
            "score": score,
            "text": passage.text,
            "attributes": attributes_of(passage.metadata),
            EXTENSION: {
                "page": passage.page,
                "start": passage.start,
                "end": passage.end,
                "url": document_url(answer.base_url, *where),
            },
        }

    def _annotated(self, citation: Citation) -> Iterator[dict[str, Any]]:
        yield {"type": "url_citation", **self._answer.url_citation(citation)}
        yield {
            "type": "file_citation",
            "file_id": self._answer.document_id(citation),
            "filename": citation.document,
            "index": citation.answer_end,
        }

    def _item(self, status: str) -> dict[str, Any]:
        call = self._answer.call
        if call is None:
            return self._message(status)
        names = {"id": self._id("fc"), "call_id": self._id("call"), "name": call.name, "arguments": call.arguments}
        return {"type": "function_call", "status": status, **names}

    def _message(self, status: str) -> dict[str, Any]:
        return {
            "type": "message",
            "id": self._id("msg"),
            "status": status,
            "role": "assistant",
            "content": [_part(self._answer.text, self._annotations)],
        }


def _part(text: str, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.generated_tokens,
    }
