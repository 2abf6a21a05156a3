"""The official OpenAI client against a daemon, and that HTTP and gRPC give the same answers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.http.conftest import SLOTS_OF_ONE_CALLER
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

MODEL = "edge-rag/default"
QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "What is the usual dose of hypochlorite?",
    "Which gearbox oil is used?",
    "How is a water sample taken?",
)
UNANSWERABLE = "Which colour does the moon's dragon prefer on Thursdays?"


def asked(question: str, **options: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": question}], **options}


def over_grpc(daemon: RunningDaemon, question: str) -> tuple[str, list[tuple[str, int, int, int, int]]]:
    with grpc.insecure_channel(daemon.address) as channel:
        events = list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question=question)))
    text = "".join(event.text.text for event in events if event.HasField("text"))
    cited = [event.citation for event in events if event.HasField("citation")]
    return text, [(c.document, c.start, c.end, c.answer_start, c.answer_end) for c in cited]


def citations(annotations: Any) -> list[tuple[str, int, int, int, int]]:
    found = []
    for annotation in annotations or ():
        cited = annotation["url_citation"] if isinstance(annotation, dict) else annotation.url_citation.model_dump()
        place = cited["edge_rag"]
        found.append((place["document"], place["start"], place["end"], cited["start_index"], cited["end_index"]))
    return found


def streamed(chunks: list[Any]) -> tuple[str, list[tuple[str, int, int, int, int]]]:
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    annotated = [delta.annotations for delta in deltas if getattr(delta, "annotations", None)]
    assert len(annotated) <= 1, "citations come once"
    return "".join(delta.content or "" for delta in deltas), citations(annotated[0] if annotated else [])


def test_collections_are_models(client: Any) -> None:
    assert [model.id for model in client.models.list() if model.id.startswith("edge-rag/")] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "edge-rag"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("edge-rag/nothing")
    assert error.value.code == "collection_not_found"


def test_every_sample_question_has_the_same_answer_over_http_and_grpc(http_daemon: RunningDaemon, client: Any) -> None:
    for question in QUESTIONS:
        expected = over_grpc(http_daemon, question)
        message = client.chat.completions.create(**asked(question)).choices[0].message
        assert (message.content, citations(message.annotations)) == expected
    assert any(over_grpc(http_daemon, question)[1] for question in QUESTIONS)


def test_a_stream_is_the_whole_answer_in_parts(client: Any) -> None:
    whole = client.chat.completions.create(**asked(QUESTIONS[0])).choices[0].message
    chunks = list(client.chat.completions.create(**asked(QUESTIONS[0], stream=True)))
    assert streamed(chunks) == (whole.content, citations(whole.annotations))
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_ends_with_the_usage_if_it_is_asked_for(client: Any) -> None:
    *chunks, last = client.chat.completions.create(
        **asked(QUESTIONS[0], stream=True, stream_options={"include_usage": True})
    )
    assert last.choices == []
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)


async def test_the_asynchronous_client_gets_the_same(asynchronous: Any) -> None:
    whole = (await asynchronous.chat.completions.create(**asked(QUESTIONS[1]))).choices[0].message
    chunks = [chunk async for chunk in await asynchronous.chat.completions.create(**asked(QUESTIONS[1], stream=True))]
    assert streamed(chunks) == (whole.content, citations(whole.annotations))


def test_a_citation_can_be_followed_to_exactly_its_words(client: Any) -> None:
    message = client.chat.completions.create(**asked(QUESTIONS[0])).choices[0].message
    cited = message.annotations[0].url_citation.model_dump()
    with urllib.request.urlopen(cited["url"], timeout=30) as plain:
        assert plain.headers.get_content_type() == "text/plain"
        text = plain.read().decode()
    assert text == cited["edge_rag"]["text"]
    assert message.content[cited["start_index"] : cited["end_index"]] == text
    request = urllib.request.Request(cited["url"], headers={"accept": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as described:
        found = json.load(described)
    assert (found["text"], found["name"], found["id"]) == (
        text,
        cited["edge_rag"]["document"],
        cited["edge_rag"]["document_id"],
    )


def test_the_examples_of_the_guide_run(http_daemon: RunningDaemon, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "http.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    command = re.search(r"```sh\n(curl .*?)```", guide, re.DOTALL)
    assert program is not None
    assert command is not None
    for run in ([sys.executable, "-c", program[1]], ["bash", "-c", command[1].replace("curl", "curl --fail --silent")]):
        there = [part.replace("http://127.0.0.1:7480", http_daemon.http) for part in run]
        done = subprocess.run(there, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "2,000 operating hours" in done.stdout
        assert f"{http_daemon.http}/documents/" in done.stdout


def test_a_question_without_an_answer_says_so(client: Any) -> None:
    done = client.chat.completions.create(**asked(UNANSWERABLE))
    assert done.model_extra["edge_rag"]["found"] is False
    assert done.choices[0].message.annotations == []


def test_a_field_that_is_not_supported_is_refused_by_its_name(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(**asked("How?", n=2))
    assert (error.value.param, error.value.code, error.value.type) == ("n", "invalid_request", "invalid_request_error")
    assert error.value.request_id


def test_a_client_that_is_refused_for_want_of_slots_tries_again_by_itself(http_daemon: RunningDaemon) -> None:
    host, port = http_daemon.http.removeprefix("http://").split(":")
    body = json.dumps(asked(QUESTIONS[0])).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n"
    statuses: list[int] = []
    with ExitStack() as opened:
        waiting = [
            opened.enter_context(socket.create_connection((host, int(port)), timeout=30))
            for _ in range(SLOTS_OF_ONE_CALLER)
        ]
        for each in waiting:
            each.sendall(head.encode())
            assert b"100" in each.recv(64)  # it is admitted, and its body is waited for

        def on_response(response: Any) -> None:
            statuses.append(response.status_code)
            if response.status_code == 429:
                assert int(response.headers["retry-after-ms"]) > 0
                for each in waiting:
                    each.sendall(body)
                    assert b"200 OK" in each.recv(64)

        http = opened.enter_context(openai.DefaultHttpxClient(event_hooks={"response": [on_response]}))
        client = openai.OpenAI(base_url=f"{http_daemon.http}/v1", api_key="any", max_retries=5, http_client=http)
        assert client.chat.completions.create(**asked(QUESTIONS[0])).choices[0].message.content
    assert statuses[0] == 429
    assert statuses[-1] == 200


def test_an_id_that_the_client_chose_is_kept(client: Any) -> None:
    raw = client.chat.completions.with_raw_response.create(
        **asked(QUESTIONS[0]), extra_headers={"x-request-id": "ticket-17"}
    )
    assert raw.headers["x-request-id"] == "ticket-17"
