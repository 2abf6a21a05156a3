"""The kept fixtures are what their script makes today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.synthetic.tiny_model import FAMILIES, FIXTURES, QUANTIZED, original_logits

MAKER = [sys.executable, "-m", "tests.fixtures.makers.make_tiny_models"]


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("remade")
    done = subprocess.run(
        [*MAKER, "--out", str(out)], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.mark.convert
@pytest.mark.parametrize("family", FAMILIES)
def test_remaking_a_tiny_model_gives_the_kept_logits_and_graph(remade: Path, family: str) -> None:
    with np.load(FIXTURES / f"{family}.npz") as kept, np.load(remade / f"{family}.npz") as made:
        np.testing.assert_array_equal(made["token_ids"], kept["token_ids"])
        np.testing.assert_allclose(made["logits"], kept["logits"], rtol=1e-4, atol=1e-4)
        token_ids, logits = kept["token_ids"], kept["logits"]
    np.testing.assert_allclose(original_logits(remade / family, token_ids), logits, rtol=1e-3, atol=1e-3)
    kept_graph, made_graph = (
        onnx.load(root / family / "paged.onnx", load_external_data=False) for root in (FIXTURES, remade)
    )
    assert [node.op_type for node in made_graph.graph.node] == [node.op_type for node in kept_graph.graph.node]
    assert (remade / family / "tokenizer.json").read_bytes() == (FIXTURES / family / "tokenizer.json").read_bytes()


@pytest.mark.convert
@pytest.mark.parametrize("name", QUANTIZED)
def test_remaking_a_quantized_model_gives_the_kept_graph_and_weights(remade: Path, name: str) -> None:
    kept, made = (onnx.load(root / name / "paged.onnx", load_external_data=False) for root in (FIXTURES, remade))
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in kept.graph.node]
    assert (remade / name / "paged.onnx.data").read_bytes() == (FIXTURES / name / "paged.onnx.data").read_bytes()
