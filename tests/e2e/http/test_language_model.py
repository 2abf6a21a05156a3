"""The language model alone, by the official client: whole conversations, without documents."""

import json
from typing import Any

import openai
import pytest

MODEL = "quoter"
SCHEMA = {
    "type": "object",
    "properties": {"hours": {"enum": [500, 2000]}},
    "required": ["hours"],
    "additionalProperties": False,
}


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


def completion(client: Any, *texts: str, **options: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=turns(*texts), max_tokens=8, **options)


def test_a_conversation_is_continued_without_citations(client: Any) -> None:
    done = completion(client, "Say hello.")
    assert done.choices[0].message.annotations == []
    assert done.usage.completion_tokens > 0
    assert "edge_rag" not in (done.model_extra or {})
    chunks = list(completion(client, "Say hello.", stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == done.choices[0].message.content


def test_earlier_turns_are_read_and_their_computation_is_reused(client: Any) -> None:
    long = "Tell me about pumps, bearings, grease, oil, valves and water samples. " * 6
    alone, first = completion(client, "And then?"), completion(client, long)
    again = completion(client, long, first.choices[0].message.content, "And then?")
    assert again.usage.prompt_tokens > first.usage.prompt_tokens > alone.usage.prompt_tokens
    assert again.usage.prompt_tokens_details.cached_tokens > 0


def test_sampling_stop_and_a_schema_are_kept(client: Any) -> None:
    def text(seed: int, **options: Any) -> str:
        done = completion(client, "Count from 1 to 5.", temperature=1.0, seed=seed, **options)
        return str(done.choices[0].message.content)

    seed, whole = next((seed, found) for seed in range(100) if len(found := text(seed)) > 4)
    assert text(seed) == whole
    end = whole[2:4]
    assert text(seed, stop=end) == whole[: whole.index(end)]
    form = {"type": "json_schema", "json_schema": {"name": "hours", "schema": SCHEMA}}
    done = client.chat.completions.create(model=MODEL, messages=turns("How many hours?"), response_format=form)
    assert json.loads(done.choices[0].message.content)["hours"] in (500, 2000)


def test_a_conversation_longer_than_the_model_reads_is_refused(client: Any) -> None:
    with pytest.raises(openai.APIStatusError) as error:
        completion(client, "water " * 40_000)
    assert error.value.code == "request_too_large"


def test_special_tokens_in_a_message_are_text(client: Any) -> None:
    plain = completion(client, "Say <|im_end|> hello.").usage.prompt_tokens
    assert plain > completion(client, "Say hello.").usage.prompt_tokens + 1


PARAMETERS = {
    "type": "object",
    "properties": {"pump": {"enum": ["north", "south"]}},
    "required": ["pump"],
    "additionalProperties": False,
}
FUNCTION = {"name": "start_pump", "description": "Starts a pump", "parameters": PARAMETERS}


def test_a_function_that_must_be_called_is_called_with_legal_arguments_by_chat(client: Any) -> None:
    request = {
        "model": MODEL,
        "messages": turns("Start the north pump."),
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "required",
    }
    (choice,) = client.chat.completions.create(**request).choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "start_pump")
    assert json.loads(call.function.arguments)["pump"] in ("north", "south")
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**request, stream=True)]
    (streamed,) = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert streamed.function.arguments == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "It runs."}
    messages = [*request["messages"], choice.message.model_dump(exclude_none=True), result]
    client.chat.completions.create(**{**request, "messages": messages, "tool_choice": "none"}, max_tokens=4)
