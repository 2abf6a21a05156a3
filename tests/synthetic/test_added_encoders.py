"""Embedders and cross-encoders from their checkpoints through ``edge-rag models add``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder

MAKER = [sys.executable, "-m", "tests.fixtures.makers.make_tiny_encoders"]

pytestmark = pytest.mark.convert


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders")
    done = subprocess.run(
        [*MAKER, "--out", str(out)], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def add(source: Path, data: Path, *options: str) -> Any:
    done = CliRunner().invoke(main, ["models", "add", str(source), "--data-dir", str(data), "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "pooling", "prompts", "precision", "least"),
    [
        ("bert-mean", "mean", ("", ""), "int8", 0.99),
        ("bert-cls-prompts", "cls", ("find: ", "text: "), "fp32", 0.99999),
        ("xlm-mean", "mean", ("query: ", "passage: "), "int8", 0.99),
        ("modern-mean", "mean", ("", ""), "int8", 0.99),
        ("modern-cls", "cls", ("", ""), "int8", 0.99),
    ],
)
def test_an_added_embedder_gives_questions_and_passages_the_vectors_of_its_original(
    checkpoints: Path, tmp_path: Path, name: str, pooling: str, prompts: tuple[str, str], precision: str, least: float
) -> None:
    assert add(checkpoints / name, tmp_path, "--precision", precision)["role"] == "embedder"
    manifest = verify_model_folder(tmp_path / "models" / name, ModelRole.EMBEDDER)
    assert manifest.parameters["pooling"] == pooling
    assert (manifest.text("question_prompt"), manifest.text("passage_prompt")) == prompts
    assert manifest.integer("max_tokens", 1, 1000) == 96
    encoder = TextEncoder.open(tmp_path / "models" / name)
    with np.load(checkpoints / f"{name}.npz") as original:
        texts = [str(text) for text in original["texts"]]
        asked, told = encoder.embed_questions(texts), encoder.embed(texts)
        assert (asked * original["questions"]).sum(axis=1).min() > least
        assert (told * original["passages"]).sum(axis=1).min() > least


@pytest.mark.parametrize(("name", "precision", "error"), [("bert-judge", "int8", 0.15), ("xlm-judge", "fp32", 1e-4)])
def test_an_added_cross_encoder_scores_as_its_original_does(
    checkpoints: Path, tmp_path: Path, name: str, precision: str, error: float
) -> None:
    assert add(checkpoints / name, tmp_path, "--precision", precision, "--role", "reranker")["role"] == "reranker"
    judge = PairEncoder.open(tmp_path / "models" / name)
    with np.load(checkpoints / f"{name}.npz") as original:
        scores = judge.score([(str(question), str(passage)) for question, passage in original["pairs"]])
        assert np.abs(scores - original["scores"]).max() < error * 3 * original["scores"].std()


@pytest.mark.parametrize("name", ["bert-mean", "xlm-mean", "modern-mean", "modern-cls"])
def test_every_token_has_the_vector_of_its_original(checkpoints: Path, tmp_path: Path, name: str) -> None:
    """Unrounded, to 1e-4 of the vectors' length."""
    add(checkpoints / name, tmp_path, "--precision", "fp32")
    encoder = TextEncoder.open(tmp_path / "models" / name)
    with np.load(checkpoints / f"{name}.npz") as original:
        found = encoder.token_vectors([str(text) for text in original["texts"]])
        expected = [vectors[1:-1] for vectors in np.split(original["tokens"], np.cumsum(original["lengths"])[:-1])]
    for vectors, rows in zip(found, expected, strict=True):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors.vectors, unit, atol=1e-4)
