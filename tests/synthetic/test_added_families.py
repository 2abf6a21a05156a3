"""Each family from a Hugging Face folder to its first token through ``edge-rag models add``."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from tests.synthetic.tiny_model import Logits, TokenIds, position_errors

MAKER = [sys.executable, "-m", "tests.fixtures.makers.make_families"]
FAMILIES = (
    "llama-3", "smollm2", "qwen2.5", "qwen3", "phi-3-mini", "phi-4-mini", "smollm3", "gemma-3", "mistral",
    "gemma", "granite",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("families")
    done = subprocess.run(
        [*MAKER, "--out", str(out)], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def add(checkpoints: Path, data: Path, family: str, precision: str) -> Path:
    arguments = [
        "models",
        "add",
        str(checkpoints / family),
        "--precision",
        precision,
        "--data-dir",
        str(data),
        "--json",
        "--accept-loss",  # random weights lose more by 4 bits than trained ones
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["role"] == "generator"
    return data / "models" / family


def logits_of(folder: Path, token_ids: TokenIds) -> Logits:
    pages = -(-token_ids.size // read_geometry(folder).page_tokens)
    return teacher_forced_logits(PagedDecoder.open(folder, pages), token_ids, prompt_tokens=token_ids.size - 16)


@pytest.mark.convert
@pytest.mark.parametrize("family", FAMILIES)
def test_an_added_model_computes_what_hugging_face_computes_at_every_position(
    checkpoints: Path, tmp_path: Path, family: str
) -> None:
    folder = add(checkpoints, tmp_path, family, "int8")
    with np.load(checkpoints / f"{family}.npz") as kept:
        token_ids, expected = kept["token_ids"], kept["logits"]
    found = logits_of(folder, token_ids)
    errors = position_errors(found, expected)
    assert errors.max() < 0.12
    assert errors.mean() < 0.05
