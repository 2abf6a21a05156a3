"""A model of onnxruntime-genai, from its folder through ``models add`` to answers over gRPC."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents
from tests.synthetic.serial_model import WHY, genai_folder

QUESTION = "How often must the pump bearings be greased?"
ANSWER = "whichever comes first"


def models(data: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(main, ["models", *arguments, "--data-dir", str(data)])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_RAG_LISTEN", f"unix:{tmp_path}/nobody")
    data = tmp_path / "data"
    said = models(data, "add", str(genai_folder(tmp_path / "tiny"))).stderr
    assert "tiny runs serially" in said
    assert WHY in said
    return data


@pytest.fixture
def running(start: Callable[..., RunningDaemon], data: Path) -> RunningDaemon:
    models(data, "use", "generator", "tiny")
    running = start(data_dir=data, config='[models]\ngenerator = ""\n')
    ingest(running.address, sample_documents())
    return running


@pytest.fixture
def channel(running: RunningDaemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.address) as channel:
        yield channel


def ask(channel: grpc.Channel, request: rag_pb2.AskRequest | None = None) -> tuple[str, list[rag_pb2.AskResponse]]:
    asked = rag_pb2.AskRequest(question=QUESTION, passages=2, sampling=rag_pb2.Sampling(max_tokens=60))
    asked.MergeFrom(request or rag_pb2.AskRequest())
    events = list(rag_pb2_grpc.RagStub(channel).Ask(asked, timeout=120))
    assert events[-1].HasField("finished")
    return "".join(event.text.text for event in events), events


def free(max_tokens: int, **more: Any) -> rag_pb2.AskRequest:
    sampling = rag_pb2.Sampling(max_tokens=max_tokens, **more)
    return rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_FREE, sampling=sampling)


def status(channel: grpc.Channel) -> admin_pb2.GetStatusResponse:
    return admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)


def test_the_store_says_what_runs_serially_and_why(data: Path) -> None:
    listed = json.loads(models(data, "list", "--json").stdout)["models"]
    assert {model["name"]: model["form"] for model in listed} == {
        "minilm-l6": None,
        "multilingual-e5-small": None,
        "tiny": "serial",
    }
    manifest = json.loads((data / "models" / "tiny" / "manifest.json").read_bytes())
    assert manifest["parameters"]["form"] == "serial"
    assert WHY in manifest["parameters"]["why_serial"]
    assert manifest["parameters"]["agreement_with_itself"]["good"] is True
    assert {"genai_config.json", "model.onnx", "model.onnx.data"} <= set(manifest["files"])
    assert json.loads(models(data, "verify", "--json").stdout)["ok"] is True


def test_a_daemon_answers_with_it_in_every_mode_and_says_how_it_runs(channel: grpc.Channel) -> None:
    (generator,) = [model for model in status(channel).models if model.role == "generator"]
    assert generator.name == "tiny"
    assert generator.detail.startswith("serial, onnxruntime-genai: ")
    assert WHY in generator.detail
    assert status(channel).engine.slots == 1
    text, events = ask(channel)
    assert ANSWER in text
    assert any(event.HasField("citation") for event in events)
    written, events = ask(channel, free(12))
    assert written
    assert events[-1].finished.usage.model_steps >= 12
    held, _ = ask(channel, rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_FREE, regex="[0-9]{3} (h|days)"))
    assert held[:3].isdigit()
    assert held[3:] in (" h", " days")


def test_it_gives_way_to_another_model_and_back_while_running_and_stops_in_order(
    running: RunningDaemon, channel: grpc.Channel
) -> None:
    stub = admin_pb2_grpc.AdminStub(channel)
    serial = ask(channel)[0]
    for name, form in (("quoter", "paged"), ("tiny", "serial"), ("quoter", "paged")):
        used = stub.UseModel(admin_pb2.UseModelRequest(role="generator", name=name), timeout=120).model
        assert used.detail.startswith(form)
        assert ask(channel)[0]
    stub.UseModel(admin_pb2.UseModelRequest(role="generator", name="tiny"), timeout=120)
    assert ask(channel)[0] == serial
    assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()
