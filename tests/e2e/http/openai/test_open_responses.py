"""What the public acceptance tests of Open Responses (openresponses.org) ask for, of a trained language model.

Of the six, five are answered. An image is refused by its field: no model that the box runs reads images.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import Response

from tests.e2e.http.openai.test_responses import EVENT, NOT_NULL, NULLABLE
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon

pytestmark = pytest.mark.convert

MODEL = "smollm2-135m"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("open-responses")
    added = [sys.executable, "-m", "edge_rag", "models", "add", MODEL, "--data-dir", str(folder / "data")]
    subprocess.run(added, check=True, timeout=500)
    config = f'[http]\nenabled = true\naddress = "127.0.0.1:0"\n[models]\ngenerator = "{MODEL}"\n'
    with start_daemon(folder / "data", folder / "log", config, models={}) as running:
        yield running


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def sent(daemon: RunningDaemon, *items: dict[str, Any], **fields: Any) -> bytes:
    body = json.dumps({"model": MODEL, "input": list(items), "stream": False, **fields}).encode()
    request = urllib.request.Request(f"{daemon.http}/v1/responses", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        read: bytes = response.read()
        return read


def completed(found: dict[str, Any]) -> str:
    Response.model_validate(found, strict=True)
    assert [name for name in NOT_NULL if found.get(name) is None] == []
    assert [name for name in NULLABLE if name not in found] == []
    assert found["status"] == "completed"
    (item,) = found["output"]
    text: str = item["content"][0]["text"]
    assert text
    return text


def test_a_basic_text_response(daemon: RunningDaemon) -> None:
    completed(json.loads(sent(daemon, message("user", "Say hello in exactly three words."))))


def test_a_streaming_response(daemon: RunningDaemon) -> None:
    lines = sent(daemon, message("user", "Count from 1 to 5."), stream=True).decode().splitlines()
    *data, end = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert end == "[DONE]"
    events = [json.loads(each) for each in data]
    assert [line.removeprefix("event: ") for line in lines if line.startswith("event: ")] == [
        event["type"] for event in events
    ]
    for event in events:
        EVENT.validate_python(event)
    text = completed(events[-1]["response"])
    assert "".join(event["delta"] for event in events if "delta" in event) == text


def test_a_system_prompt(daemon: RunningDaemon) -> None:
    hello = message("user", "Say hello.")
    pirate = message("system", "You are a pirate. Always respond in pirate speak.")
    assert completed(json.loads(sent(daemon, pirate, hello))) != completed(json.loads(sent(daemon, hello)))


def test_a_conversation_of_several_turns(daemon: RunningDaemon) -> None:
    items = [
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        message("user", "What is my name?"),
    ]
    found = json.loads(sent(daemon, *items))
    completed(found)
    alone = json.loads(sent(daemon, items[-1]))
    assert found["usage"]["input_tokens"] > alone["usage"]["input_tokens"] + 10


def test_tool_calling(daemon: RunningDaemon) -> None:
    asked = message("user", "What's the weather like in San Francisco?")
    found = json.loads(sent(daemon, asked, tools=[TOOL]))
    Response.model_validate(found, strict=True)
    (call,) = found["output"]
    assert (found["status"], call["type"], call["name"]) == ("completed", "function_call", "get_weather")
    assert "San Francisco" in json.loads(call["arguments"])["location"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "14 degrees, fog"}
    completed(json.loads(sent(daemon, asked, call, result, tools=[TOOL], tool_choice="none")))


def test_tool_calling_in_a_stream(daemon: RunningDaemon) -> None:
    asked = message("user", "What's the weather like in San Francisco?")
    lines = sent(daemon, asked, tools=[TOOL], stream=True).decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    for event in events:
        EVENT.validate_python(event)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


IMAGE = message("user", [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PIXEL}])


def test_an_image_is_refused_by_its_field(daemon: RunningDaemon) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        sent(daemon, IMAGE)
    assert refused.value.code == 400
    assert json.load(refused.value)["error"]["param"] == "input[0].content[1]"
