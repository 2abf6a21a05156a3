"""Streams that do not end well, as the official client sees them."""

from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

CONFIG = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n[limits]\ndrain_seconds = 0\n'
MODEL = "edge-rag/default"
QUESTION = "How often must the pump bearings be greased?"
LONG = {"type": "array", "items": {"type": "string", "minLength": 8}, "minItems": 100_000}
"""What takes a model longer to write than a daemon to end."""


@pytest.fixture
def daemon(start: Callable[..., RunningDaemon]) -> RunningDaemon:
    running = start(config=CONFIG)
    ingest(running.address, sample_documents())
    return running


@pytest.fixture
def client(daemon: RunningDaemon) -> Any:
    return openai.OpenAI(base_url=f"{daemon.http}/v1", api_key="any", max_retries=0)


def chat(client: Any) -> Any:
    form = {"type": "json_schema", "json_schema": {"name": "long", "schema": LONG}}
    messages = [{"role": "user", "content": QUESTION}]
    return client.chat.completions.create(
        model=MODEL, messages=messages, response_format=form, max_tokens=1024, stream=True
    )


def response(client: Any) -> Any:
    form = {"format": {"type": "json_schema", "name": "long", "schema": LONG}}
    return client.responses.create(model=MODEL, input=QUESTION, text=form, max_output_tokens=1024, stream=True)


def test_a_daemon_that_is_asked_to_stop_tells_both_streams(daemon: RunningDaemon, client: Any) -> None:
    chunks, events = chat(client), response(client)
    next(chunks)
    assert next(events).type == "response.created"
    daemon.process.terminate()
    with pytest.raises(openai.APIError, match="characters of the answer were sent") as cut:
        list(chunks)
    assert cut.value.code == "not_ready"
    *_, last = events
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert "characters of the answer were sent" in last.response.error.message


def test_a_daemon_that_is_killed_ends_both_streams_by_an_error(daemon: RunningDaemon, client: Any) -> None:
    streams = chat(client), response(client)
    for stream in streams:
        next(stream)
    daemon.kill()
    for stream in streams:
        with pytest.raises(openai.APIError):
            list(stream)
