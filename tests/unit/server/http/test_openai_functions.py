"""Function tools of chat completions and responses, without a server."""

from typing import Any

import pytest

from edge_rag.core.generation import CompletionRequest, FunctionCall
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.query import AnswerMode
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.openai.chat import ChatWriter, parse_chat
from edge_rag.server.http.openai.responses import parse_response
from tests.unit.server.http.test_openai_responses import events

LIMITS = RequestLimits(question_characters=100, default_mode=AnswerMode.QUOTE, default_passages=4)
ASKER = Asker(RequestId("r"), Identity("ward-3", frozenset({Role.READER})), 10.0, LIMITS)
FLAT: dict[str, Any] = {"type": "function", "name": "clock", "description": "Tells the time", "parameters": None}
NESTED: dict[str, Any] = {"type": "function", "function": {"name": "clock", "description": "Tells the time"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}


def chat(**fields: Any) -> CompletionRequest:
    least = {"model": "quoter", "messages": [{"role": "user", "content": "What time is it?"}]}
    query = parse_chat({**least, **fields}, ASKER, "quoter").query
    assert isinstance(query, CompletionRequest)
    return query


def response(**fields: Any) -> CompletionRequest:
    query = parse_response({"model": "quoter", "input": "What time is it?", **fields}, ASKER, "quoter").query
    assert isinstance(query, CompletionRequest)
    return query


def test_both_interfaces_describe_the_same_function() -> None:
    assert chat(tools=[NESTED]).functions == response(tools=[FLAT]).functions
    (function,) = response(tools=[FLAT]).functions
    assert (function.name, function.description) == ("clock", "Tells the time")


@pytest.mark.parametrize(
    ("choice", "functions", "must_call"),
    [("auto", 1, False), (None, 1, False), ("none", 0, False), ("required", 1, True)],
)
def test_the_choice_of_a_tool(choice: str | None, functions: int, must_call: bool) -> None:
    request = response(tools=[FLAT], tool_choice=choice)
    assert (len(request.functions), request.must_call) == (functions, must_call)
    other = {**FLAT, "name": "date"}
    named = response(tools=[FLAT, other], tool_choice={"type": "function", "name": "date"})
    assert ([each.name for each in named.functions], named.must_call) == (["date"], True)
    nested = {"type": "function", "function": {"name": "clock"}}
    assert chat(tools=[NESTED], tool_choice=nested).must_call


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [1]}, "tools[0].type"),
        ({"tools": [{**FLAT, "name": "what time"}]}, "tools[0].name"),
        ({"tools": [{**FLAT, "colour": 1}]}, "tools[0].colour"),
        ({"tools": [{**FLAT, "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [FLAT, FLAT]}, "tools[1]"),
        ({"tools": [{**FLAT, "name": f"f{number}"} for number in range(65)]}, "tools"),
        ({"tools": [FLAT], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FLAT], "text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "1"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "f", "arguments": "{"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "f"}]}, "input[0]"),
        ({"model": "edge-rag/a", "tools": [FLAT]}, "tools[0].type"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        response(**fields)
    assert error.value.field == field


def test_a_call_and_its_result_are_turns_of_the_conversation_in_both_interfaces() -> None:
    items = [
        {"role": "user", "content": "What time is it?"},
        {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "noon"},
    ]
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    turns = response(input=items, tools=[FLAT]).conversation.turns
    assert turns == ("What time is it?", '{"function": "clock", "arguments": {}}', "Result of clock: noon")
    assert chat(messages=messages, tools=[NESTED]).conversation.turns == turns


def test_chat_tells_a_call_whole_and_in_a_stream() -> None:
    body = {"model": "quoter", "messages": [{"role": "user", "content": "Now?"}], "tools": [NESTED]}
    whole, streaming = (
        ChatWriter(parse_chat(body, ASKER, "quoter"), 1_700_000_000, "http://box:7480") for _ in range(2)
    )
    taken = (FunctionCall("clock", "{}"), events()[-1])
    for event in taken:
        list(whole.events(event))
    (choice,) = whole.whole()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"] == {"name": "clock", "arguments": "{}"}
    deltas = [chunk["choices"][0]["delta"] for event in taken for chunk in streaming.events(event)]
    assert deltas[1] == {"tool_calls": [{"index": 0, **call}]}
