"""What tells a model functions, and what is read of its answer."""

import json

import jsonschema
import pytest

from edge_rag.core.generation import CompletionRequest, Conversation, Function, FunctionCall
from edge_rag.core.ids import RequestId
from edge_rag.core.query import JsonSchema, Priority, Sampling
from edge_rag.generator.functions import answer_format, call_text, read_answer, with_functions

PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER = Function("weather", "Tells the weather", json.dumps(PLACE))
CLOCK = Function("clock", "", '{"type":"object","additionalProperties":false}')


@pytest.mark.parametrize(
    ("answer", "when"),
    [
        ({"function": "weather", "arguments": {"place": "Oslo"}}, {True, False}),
        ({"function": "clock", "arguments": {}}, {True, False}),
        ({"function": "none", "answer": "So."}, {False}),
        ({"function": "weather", "arguments": {}}, set()),
        ({"function": "clock", "arguments": {"place": "Oslo"}}, set()),
        ({"function": "other", "arguments": {}}, set()),
        ({"function": "weather", "answer": "So."}, set()),
    ],
)
def test_an_answer_is_a_legal_call_or_a_text_unless_there_must_be_a_call(answer: object, when: set[bool]) -> None:
    for must_call in (True, False):
        schema = json.loads(answer_format((WEATHER, CLOCK), must_call).schema)
        assert jsonschema.Draft202012Validator(schema).is_valid(answer) == (must_call in when)


def test_the_system_message_describes_each_function_after_that_of_the_caller() -> None:
    conversation = Conversation("Be brief.", ("Hello",))
    request = CompletionRequest(
        RequestId("r"), conversation, Sampling(), Priority.NORMAL, "c", None, functions=(WEATHER, CLOCK)
    )
    prepared = with_functions(request)
    assert prepared.conversation.system.startswith("Be brief.\n\n")
    assert all(text in prepared.conversation.system for text in ("weather", "Tells the weather", '"place"', "clock"))
    assert prepared.conversation.turns == conversation.turns
    assert isinstance(prepared.format, JsonSchema)


def test_a_call_is_read_as_it_is_written() -> None:
    call = FunctionCall("weather", '{"place": "Tromsø"}')
    assert read_answer(call_text(call)) == call
    assert read_answer('{"function": "none", "answer": "So."}') == "So."
    assert read_answer('{"function": "weather", "argum') == ""
