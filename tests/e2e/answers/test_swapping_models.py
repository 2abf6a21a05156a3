"""Another model takes a role while questions keep coming."""

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import (
    GENERATOR,
    ROOT,
    RunningDaemon,
    ingest,
    sample_documents,
    start_daemon,
    status_of,
)

QUESTIONS = ("How often must the pump bearings be greased?", "What is the rated flow of the pump?")
KV_MIB = 32


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swapping") / "models"
    shutil.copytree(ROOT / "models" / "minilm-l6", folder / "minilm-l6")
    for name in ("quoter", "second", "altered"):
        shutil.copytree(GENERATOR, folder / name)
    with (folder / "altered" / "tokenizer.json").open("a") as file:
        file.write(" ")
    return folder


@pytest.fixture(scope="module")
def running(models: Path) -> Iterator[RunningDaemon]:
    config = f'[models]\ndirectory = "{models}"\n[generator]\nkv_memory_mib = {KV_MIB}\n'
    with start_daemon(models.parent / "data", models.parent / "log", config) as running:
        ingest(running.address, sample_documents())
        yield running


@pytest.fixture
def channel(running: RunningDaemon) -> Iterator[grpc.Channel]:
    """A channel to a daemon that has ``quoter`` in place."""
    with grpc.insecure_channel(running.address) as channel:
        if generator(channel) != "quoter":
            use(channel, "quoter")
        yield channel


def use(channel: grpc.Channel, name: str, role: str = "generator") -> admin_pb2.Model:
    request = admin_pb2.UseModelRequest(role=role, name=name)
    return admin_pb2_grpc.AdminStub(channel).UseModel(request, timeout=120).model


def generator(channel: grpc.Channel) -> str:
    (name,) = (model.name for model in status(channel).models if model.role == "generator")
    return name


def ask(channel: grpc.Channel, question: str) -> str:
    request = rag_pb2.AskRequest(question=question, mode=rag_pb2.ANSWER_MODE_FREE)
    request.sampling.max_tokens = 40
    events = list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=120))
    assert events[-1].HasField("finished")
    return "".join(event.text.text for event in events)


def status(channel: grpc.Channel) -> admin_pb2.GetStatusResponse:
    return admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)


def completed(channel: grpc.Channel) -> int:
    (count,) = (stage.completed for stage in status(channel).stages if stage.name == "generator")
    return count


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

    asked = completed(channel) + swapped_under_load(("second", "quoter"))
    one_model = status(channel).resident_bytes
    asked += swapped_under_load(("second", "quoter", "second", "quoter", "second"))

    assert generator(channel) == "second"
    assert completed(channel) == asked
    model_bytes = sum(path.stat().st_size for path in GENERATOR.iterdir()) + (KV_MIB << 20)
    reports = admin_pb2_grpc.AdminStub(channel).WatchStatus(admin_pb2.WatchStatusRequest(), timeout=10)
    # Five that stayed would be far above.
    assert any(report.status.resident_bytes <= one_model + model_bytes for report in reports)


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
    channel: grpc.Channel, role: str, name: str, code: grpc.StatusCode, said: str
) -> None:
    before = ask(channel, QUESTIONS[0])
    with pytest.raises(grpc.RpcError) as refused:
        use(channel, name, role)
    found, message = status_of(refused.value)
    assert found is code
    assert said in message
    assert generator(channel) == "quoter"
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
    assert generator(channel) == "second"
    listed = CliRunner().invoke(main, ["models", "list", "--data-dir", str(running.data_dir), "--json"])
    assert [model["name"] for model in json.loads(listed.stdout)["models"] if model["chosen"]] == ["second"]
