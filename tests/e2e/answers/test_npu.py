"""A daemon with the profile of a board with an NPU: on the simulator, and where its plugin is missing."""

from __future__ import annotations

import json
import shutil
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

from edge_rag.client import Client
from edge_rag.core.answer import TextDelta
from edge_rag.core.placement import Precision, Provider
from tests.e2e.support.running_daemon import RunningDaemon, ingest
from tests.support.accelerators.npu import needs_npu, npu_text_encoder

PROFILE = 'profile = "qnn-htp"\n'
MANUAL = b"# Pump\n\nThe bearings of the pump are greased every 2,000 hours.\n\nThe seal is checked each week.\n"
QUESTION = "How often are the bearings of the pump greased?"


def messages(daemon: RunningDaemon) -> list[dict[str, object]]:
    return [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]


@needs_npu
def test_a_question_is_answered_with_embedder_and_reranker_on_the_npu(
    start: Callable[..., RunningDaemon], npu_graphs: Path, tmp_path: Path
) -> None:
    npu_text_encoder(npu_graphs)
    shutil.copytree(npu_graphs, tmp_path / "data" / "compiled", copy_function=shutil.copy)
    daemon = start(config=PROFILE + '[log]\nformat = "json"\n')
    ingest(daemon.address, {"manual.md": MANUAL})
    with Client(daemon.address, timeout_s=300) as client:
        answer = "".join(event.text for event in client.ask(QUESTION) if isinstance(event, TextDelta))
        status = client.status()
    assert "2,000 hours" in answer
    used = {model.role: (model.placement.used, model.placement.precision) for model in status.models}
    assert used["embedder"] == used["reranker"] == (Provider.QNN, Precision.A16W8)
    assert used["generator"] == (Provider.CPU, Precision.MODEL)
    assert not any(model.placement.is_fallback for model in status.models)
    taken = [message for message in messages(daemon) if message["event"] == "taken from the compiled graphs"]
    assert [message["tokens"] for message in taken] == [32, 64, 128, 256]


def test_without_the_plugin_the_daemon_says_aloud_that_it_runs_on_the_cpu(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime_qnn.py").write_text("raise ImportError('taken away by the test')\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = start(
        config=f'{PROFILE}[log]\nformat = "json"\n[metrics]\nport = {port}\n',
        environment={"PYTHONPATH": str(tmp_path)},
    )
    with Client(daemon.address) as client:
        (embedder,) = (model for model in client.status().models if model.role == "embedder")
    assert (embedder.placement.wanted, embedder.placement.used) == (Provider.QNN, Provider.CPU)
    assert "taken away by the test" in embedder.placement.reason
    assert "install onnxruntime-qnn" in embedder.placement.reason
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        metrics = reply.read().decode()
    assert 'edge_rag_stage_fallback{stage="embedder",used="cpu",wanted="qnn"} 1.0' in metrics
    assert 'edge_rag_stage_fallback{stage="generator",used="cpu",wanted="cpu"} 0.0' in metrics
    (warning,) = (
        message for message in messages(daemon) if message.get("stage") == "embedder" and message["level"] == "warning"
    )
    assert warning["reason"] == embedder.placement.reason
