"""Endpoints without a daemon: streams that fail, what a request may have, and responses that fit."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from edge_rag.core.answer import TextDelta
from edge_rag.core.identity import Role
from edge_rag.core.monitoring.status import DaemonState
from edge_rag.errors import DocumentNotFound
from edge_rag.server.http.api.endpoints import MAX_RESPONSE_BYTES, Endpoint, fitting, size_of
from edge_rag.server.http.api.openapi import API_ROUTES
from edge_rag.server.http.probes import is_alive, is_ready
from edge_rag.service.call import Call, Operation
from tests.unit.server.http.test_exchange import Client, Served

READ = Operation("Read", Role.READER)


@dataclass(frozen=True)
class Request:
    """A request."""

    texts: int = 2
    stream: bool = False


async def say(call: Call, request: Request) -> AsyncGenerator[TextDelta, None]:
    for number in range(request.texts):
        yield TextDelta(f"text {number}")
    raise DocumentNotFound("a.txt")


async def save(call: Call) -> AsyncGenerator[bytes, None]:
    """Sends bytes, then fails."""
    yield b"half"
    raise DocumentNotFound("a.txt")


async def echo(call: Call, request: Request) -> TextDelta:
    return TextDelta("echo")


SAY = Endpoint("POST", "/say", READ, say, events={TextDelta: "text"}, whole=lambda *_: TextDelta("whole"))


async def served(endpoint: Endpoint, body: Any, **headers: str) -> Client:
    client = Client(json.dumps(body).encode())
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    await Served().serve(client, endpoint.route().handler, READ, more=more)
    return client


@pytest.mark.parametrize("headers", [{}, {"accept": "text/event-stream"}])
async def test_a_stream_that_fails_ends_with_an_event(headers: dict[str, str]) -> None:
    client = await served(SAY, {"stream": not headers}, **headers)
    first, second, last, end = client.text.decode().split("\n\n")
    assert (first, second) == ('event: text\ndata: {"text":"text 0"}', 'event: text\ndata: {"text":"text 1"}')
    name, data = last.split("\n")
    assert (name, end) == ("event: error", "")
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "document_not_found"


async def test_a_failure_before_the_first_event_is_a_response() -> None:
    client = await served(SAY, {"stream": True, "texts": 0})
    assert (client.status, client.headers["content-type"]) == (404, "application/json")
    client = await served(SAY, {})
    assert client.status == 404


async def test_events_have_the_ids_of_their_endpoint() -> None:
    endpoint = replace(SAY, event_id=lambda event: 7, handler=say)
    client = await served(endpoint, {"stream": True, "texts": 1})
    assert client.text.startswith(b'id: 7\nevent: text\ndata: {"text":"text 0"}\n\n')


async def test_a_file_that_fails_is_cut_and_not_completed() -> None:
    client = await served(Endpoint("GET", "/save", READ, save, media_type="application/x-tar"), {})
    assert client.text == b"half"
    assert client.aborted
    assert client.messages[-1]["more_body"] is True


@pytest.mark.parametrize(("body", "field"), [({"texts": "2"}, "texts"), ({"nothing": 1}, "nothing"), ([], "request")])
async def test_a_body_that_is_not_the_request_is_refused_by_field(body: Any, field: str) -> None:
    client = await served(Endpoint("POST", "/echo", READ, echo), body)
    assert client.status == 400
    assert json.loads(client.text)["error"]["param"] == field


def test_a_response_holds_the_first_elements_that_fit_and_one_at_least() -> None:
    half = TextDelta("x" * (MAX_RESPONSE_BYTES // 2))
    assert len(fitting([half] * 3)) == 1
    assert len(fitting([TextDelta("x")] * 1000)) == 1000
    assert len(fitting([TextDelta("x" * (2 * MAX_RESPONSE_BYTES))] * 2)) == 1
    assert fitting([]) == ()
    assert size_of(TextDelta("é")) == len('{"text": "é"}'.encode()) + 2


def test_a_daemon_is_alive_in_every_state_and_ready_where_it_serves() -> None:
    assert all(map(is_alive, DaemonState))
    assert {state for state in DaemonState if is_ready(state)} == {DaemonState.SERVING, DaemonState.RECOVERY}


def test_questions_tell_the_language_of_their_errors() -> None:
    asking = {route.path: route.question for route in API_ROUTES if route.question is not None}
    assert set(asking) == {"/api/v1/ask", "/api/v1/search"}
    for question in asking.values():
        assert question(b'{"question": "Wie oft?"}') == "Wie oft?"
        assert question(b'{"question": 5}') == question(b"[") == question(b"{}") == ""
