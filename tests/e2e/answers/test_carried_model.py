"""A model that one box exports and another imports, chooses and answers with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from edge_rag.client import Client
from tests.e2e.support.running_daemon import ROOT, ingest, sample_documents, start_daemon

NAME = "carried"


def models(data: Path, *arguments: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "edge_rag.cli.main", "models", *arguments, "--data-dir", data, "--json"]
    printed = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, check=True).stdout
    answer: dict[str, Any] = json.loads(printed)
    return answer


def test_a_model_of_another_box_is_imported_chosen_and_answers(tmp_path: Path) -> None:
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "minilm.tar"
    assert models(there, "export", "minilm-l6", file)["bytes"] == file.stat().st_size
    assert models(here, "import", file, "--name", NAME)["role"] == "embedder"
    models(here, "use", "embedder", NAME)
    with start_daemon(here, tmp_path / "log", models={}) as running:
        ingest(running.address, sample_documents())
        with Client(running.address) as client:
            assert NAME in {model.name for model in client.status().models}
            answer = list(client.ask("How often must the pump bearings be greased?"))
    assert any("2,000 operating hours" in getattr(event, "text", "") for event in answer)
