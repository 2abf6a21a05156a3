"""A daemon with the profile of a board with an NPU: on the simulator, and where its plugin is missing."""

import json
import shutil
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
