"""The official OpenAI client against a daemon, and that HTTP and gRPC give the same answers."""

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
from scripts.bench.quality.samples import SAMPLE_QUESTIONS
from tests.e2e.conftest import SLOTS_OF_ONE_CALLER
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

MODEL = "edge-rag/default"
GUIDE = ROOT / "docs" / "guide" / "http.md"
SAMPLES: list[str] = [item["question"] for item in json.loads(SAMPLE_QUESTIONS.read_text(encoding="utf-8"))]
"""The questions about the sample site."""

MOST = 24
"""Most tokens of an answer that is compared."""

QUESTIONS = ("How often must the pump bearings be greased?", "What do I do when the gas alarm sounds?")


def asked(question: str, **options: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": question}], **options}


Place = tuple[str, int, int, int, int]
"""A citation: document, its range there, and the range of the answer."""


def over_grpc(daemon: RunningDaemon, question: str, mode: str) -> tuple[str, list[Place]]:
    named = rag_pb2.AnswerMode.Value(f"ANSWER_MODE_{mode.upper()}")
    request = rag_pb2.AskRequest(question=question, mode=named, sampling=rag_pb2.Sampling(max_tokens=MOST))
    with grpc.insecure_channel(daemon.address) as channel:
        events = list(rag_pb2_grpc.RagStub(channel).Ask(request))
    text = "".join(event.text.text for event in events if event.HasField("text"))
    cited = [event.citation for event in events if event.HasField("citation")]
    return text, [(c.document, c.start, c.end, c.answer_start, c.answer_end) for c in cited]


def citations(annotations: Any) -> list[Place]:
    found = []
    for annotation in annotations or ():
        cited = annotation["url_citation"] if isinstance(annotation, dict) else annotation.url_citation.model_dump()
        place = cited["edge_rag"]
        found.append((place["document"], place["start"], place["end"], cited["start_index"], cited["end_index"]))
    return found


def places(printed: list[dict[str, Any]]) -> list[Place]:
    return [(c["document"], c["start"], c["end"], c["answer_start"], c["answer_end"]) for c in printed]


def streamed(chunks: list[Any]) -> tuple[str, list[Place]]:
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    annotated = [delta.annotations for delta in deltas if getattr(delta, "annotations", None)]
    assert len(annotated) <= 1, "citations come once"
    return "".join(delta.content or "" for delta in deltas), citations(annotated[0] if annotated else [])


@pytest.mark.smoke
def test_collections_are_models(client: Any) -> None:
    assert [model.id for model in client.models.list() if model.id.startswith("edge-rag/")] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "edge-rag"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("edge-rag/nothing")
    assert error.value.code == "collection_not_found"


@pytest.mark.parametrize(
    ("mode", "questions"), [("quote", SAMPLES), ("free", SAMPLES[:3])], ids=["quoted", "by a language model"]
)
def test_every_sample_question_is_answered_alike_over_every_transport(
    http_daemon: RunningDaemon, client: Any, tmp_path: Path, mode: str, questions: list[str]
) -> None:
    extension = {"edge_rag": {"mode": mode}}
    expected = [over_grpc(http_daemon, question, mode) for question in questions]
    assert any(cited for _, cited in expected) == (mode == "quote"), "what a model writes freely cites nothing"
    for question, answer in zip(questions, expected, strict=True):
        message = (
            client.chat.completions.create(**asked(question, max_tokens=MOST), extra_body=extension).choices[0].message
        )
        assert (message.content, citations(message.annotations)) == answer
        response = client.responses.create(model=MODEL, input=question, max_output_tokens=MOST, extra_body=extension)
        annotations = [each.model_dump() for each in response.output[-1].content[0].annotations]
        cited = [{"url_citation": each} for each in annotations if each["type"] == "url_citation"]
        assert (response.output_text, citations(cited)) == answer
    file = tmp_path / "questions.txt"
    file.write_text("\n".join(questions), encoding="utf-8")
    command = [sys.executable, "-m", "edge_rag", "ask", "--questions", str(file), "--server", http_daemon.address]
    command += ["--mode", mode, "--max-tokens", str(MOST)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["answer"], places(line["citations"])) for line in printed] == expected


@pytest.mark.smoke
def test_a_stream_is_the_whole_answer_in_parts(client: Any) -> None:
    whole = client.chat.completions.create(**asked(QUESTIONS[0])).choices[0].message
    chunks = list(client.chat.completions.create(**asked(QUESTIONS[0], stream=True)))
    assert streamed(chunks) == (whole.content, citations(whole.annotations))
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.smoke
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


def examples(language: str) -> list[str]:
    """Returns the examples in a language of the guide's section about asking."""
    section = re.search(r"^## Asking\n(.*?)^## ", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert section is not None
    return re.findall(rf"```{language}\n(.*?)```", section[1], re.DOTALL)


@pytest.mark.parametrize(
    "command",
    [
        *([sys.executable, "-c", program] for program in examples("python")),
        *(["bash", "-c", line.replace("curl", "curl --fail --silent")] for line in examples("sh")),
    ],
    ids=["chat", "follow-up", "responses", "curl"],
)
def test_each_example_of_the_guide_runs(http_daemon: RunningDaemon, tmp_path: Path, command: list[str]) -> None:
    there = [part.replace("http://127.0.0.1:7480", http_daemon.http) for part in command]
    done = subprocess.run(there, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2,000 operating hours" in done.stdout
    assert f"{http_daemon.http}/documents/" in done.stdout


def test_the_example_of_the_readme_runs(http_daemon: RunningDaemon) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = (found for found in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "openai" in found)
    there = program.replace("http://127.0.0.1:7480", http_daemon.http)
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "2,000 operating hours" in done.stdout


@pytest.mark.parametrize("mode", ["quote", "cite", "free"])
def test_what_a_question_leaves_to_earlier_messages_is_searched_for(client: Any, mode: str) -> None:
    before = [{"role": "user", "content": QUESTIONS[0]}, {"role": "assistant", "content": "Every 2,000 hours."}]
    follow_up = "How many grams of grease do they take?"
    extension = {"edge_rag": {"mode": mode}}
    request = asked(follow_up, max_tokens=8)
    request["messages"] = [*before, *request["messages"]]
    done = client.chat.completions.create(**request, extra_body=extension)
    response = client.responses.create(
        model=MODEL,
        input=[*before, {"role": "user", "content": follow_up}],
        max_output_tokens=8,
        extra_body=extension,
        include=["file_search_call.results"],
    )
    standalone = done.edge_rag["standalone_question"]
    assert standalone.startswith(follow_up)
    assert "bearings" in standalone
    assert response.edge_rag["standalone_question"] == standalone
    assert "Each pump bearing takes 35 grams" in response.output[0].results[0].text
    assert response.output_text == done.choices[0].message.content
    if mode == "quote":
        assert "35 grams" in response.output_text
        return
    alone = client.chat.completions.create(**asked(standalone, max_tokens=8), extra_body=extension)
    assert done.usage.prompt_tokens > alone.usage.prompt_tokens, "the model reads the turns, too"


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
