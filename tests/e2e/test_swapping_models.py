"""Another model takes a role while questions keep coming."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.running_daemon import ROOT, RunningDaemon, ingest, sample_documents, status_of

QUESTIONS = ("How often must the pump bearings be greased?", "What is the rated flow of the pump?")
KV_MIB = 32


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    shutil.copytree(ROOT / "models" / "minilm-l6", folder / "minilm-l6")
    for name in ("quoter", "second"):
        shutil.copytree(ROOT / "models" / "quoter", folder / name)
    return folder


@pytest.fixture
def running(start: Callable[..., RunningDaemon], models: Path) -> RunningDaemon:
    config = f'[models]\ndirectory = "{models}"\n[generator]\nkv_memory_mib = {KV_MIB}\n'
    running = start(config=config)
    ingest(running.address, sample_documents())
    return running


@pytest.fixture
def channel(running: RunningDaemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.address) as channel:
        yield channel


def use(channel: grpc.Channel, name: str, role: str = "generator") -> admin_pb2.Model:
    request = admin_pb2.UseModelRequest(role=role, name=name)
    return admin_pb2_grpc.AdminStub(channel).UseModel(request, timeout=120).model


def ask(channel: grpc.Channel, question: str) -> str:
    request = rag_pb2.AskRequest(question=question, mode=rag_pb2.ANSWER_MODE_FREE)
    request.sampling.max_tokens = 40
    events = list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=120))
    assert events[-1].HasField("finished")
    return "".join(event.text.text for event in events)


def status(channel: grpc.Channel) -> admin_pb2.GetStatusResponse:
    return admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)


def test_no_request_fails_while_models_are_swapped_and_memory_comes_back(channel: grpc.Channel) -> None:
    expected = {question: ask(channel, question) for question in QUESTIONS}

    def swapped_under_load(names: tuple[str, ...]) -> int:
        """Returns how many questions were asked meanwhile; all were answered as ever."""
        swapped = threading.Event()

        def keep_asking(question: str) -> list[str]:
            answers: list[str] = []
            while not swapped.is_set() or not answers:
                answers.append(ask(channel, question))
            return answers

        with ThreadPoolExecutor(6) as clients:
            asking = [(question, clients.submit(keep_asking, question)) for question in QUESTIONS * 3]
            try:
                for name in names:
                    assert use(channel, name).name == name
            finally:
                swapped.set()
            given = [(question, answers.result(120)) for question, answers in asking]
        assert all(set(answers) == {expected[question]} for question, answers in given)
        return sum(len(answers) for _, answers in given)

    asked = len(QUESTIONS) + swapped_under_load(("second", "quoter"))
    one_model = status(channel).resident_bytes
    asked += swapped_under_load(("second", "quoter", "second", "quoter", "second"))

    now = status(channel)
    assert [model.name for model in now.models if model.role == "generator"] == ["second"]
    assert next(stage.completed for stage in now.stages if stage.name == "generator") == asked
    model_bytes = sum(path.stat().st_size for path in (ROOT / "models" / "quoter").iterdir()) + (KV_MIB << 20)
    deadline = time.monotonic() + 10
    while (resident := status(channel).resident_bytes) > one_model + model_bytes and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    assert resident <= one_model + model_bytes  # five that stayed would be far above


@pytest.mark.parametrize(
    ("role", "name", "code", "said"),
    [
        ("generator", "absent", grpc.StatusCode.NOT_FOUND, "absent"),
        ("generator", "../quoter", grpc.StatusCode.INVALID_ARGUMENT, "name"),
        ("generator", "minilm-l6", grpc.StatusCode.FAILED_PRECONDITION, "embedder"),
        ("generator", "altered", grpc.StatusCode.FAILED_PRECONDITION, "tokenizer.json"),
        ("embedder", "minilm-l6", grpc.StatusCode.INVALID_ARGUMENT, "restart"),
    ],
)
def test_a_model_that_cannot_be_used_leaves_the_present_one_in_place(
    channel: grpc.Channel, models: Path, role: str, name: str, code: grpc.StatusCode, said: str
) -> None:
    shutil.copytree(models / "quoter", models / "altered")
    with (models / "altered" / "tokenizer.json").open("a") as file:
        file.write(" ")
    before = ask(channel, QUESTIONS[0])
    with pytest.raises(grpc.RpcError) as refused:
        use(channel, name, role)
    found, message = status_of(refused.value)
    assert found is code
    assert said in message
    assert ask(channel, QUESTIONS[0]) == before


def test_the_command_line_puts_a_generator_in_place_and_keeps_the_choice(
    running: RunningDaemon, channel: grpc.Channel, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_LISTEN", running.address)
    monkeypatch.setenv("EDGE_RAG_MODELS__DIRECTORY", str(models))
    used = CliRunner().invoke(
        main, ["models", "use", "generator", "second", "--data-dir", str(running.data_dir), "--json"]
    )
    assert json.loads(used.stdout)["in_place"] is True
    assert [model.name for model in status(channel).models if model.role == "generator"] == ["second"]
    listed = CliRunner().invoke(main, ["models", "list", "--data-dir", str(running.data_dir), "--json"])
    assert [model["name"] for model in json.loads(listed.stdout)["models"] if model["chosen"]] == ["second"]
