"""A GGUF file is read, or refused with the field that is wrong, within bounds of time and memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.errors import ModelError
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from tests.support.examples import examples
from tests.synthetic.hostile_gguf import read_whole
from tests.synthetic.tiny_gguf import LAYERS, MAKERS, VOCABULARY, WIDTH, tiny_model

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_model("llama").write(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str | None]]:
    """Names of files, what their error must name, and the error; the first file is sound."""
    command = [sys.executable, "-m", "tests.synthetic.hostile_gguf", str(tmp_path_factory.mktemp("hostile"))]
    child = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    )
    assert child.returncode == 0, f"a limit was exceeded after {child.stdout[-200:]}"
    return [(name, named, error) for name, named, error in map(json.loads, child.stdout.splitlines())]


def test_200_hostile_files_are_refused_by_field_within_limits_of_time_and_memory(
    refusals: list[tuple[str, str, str | None]],
) -> None:
    sound, *hostile = refusals
    assert sound == ("sound", "", None)
    assert len({name for name, _, _ in hostile}) == len(hostile) >= 200
    read_or_otherwise_refused = [
        (name, named, error)
        for name, named, error in hostile
        if error is None or not error.startswith("hostile.gguf: ") or named not in error
    ]
    assert read_or_otherwise_refused == []


@settings(max_examples=examples(150))
@given(places=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused(
    places: list[tuple[float, int]], sound: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(sound)
    metadata = len(content) - LAYERS * WIDTH * WIDTH * 4  # the rest are weights
    for share, change in places:
        content[int(share * (metadata - 1))] ^= change
    path = tmp_path_factory.mktemp("damaged") / "damaged.gguf"
    path.write_bytes(content)
    try:
        read_whole(path, layers=1)
    except ModelError as error:
        assert str(error)


def test_an_unknown_architecture_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = type(model)("mamba", model.metadata, model.tensors).write(tmp_path / "mamba.gguf")
    with pytest.raises(ModelError, match=r"architecture mamba .*granite.*qwen3"):
        describe_decoder(GgufFile(path), 256)


@pytest.mark.parametrize("name", MAKERS)
def test_metadata_and_tensors_are_those_that_were_written(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    file = GgufFile(model.write(tmp_path / "tiny.gguf"))
    assert file.strings("tokenizer.ggml.tokens") == VOCABULARY
    assert set(file.tensors) == set(model.tensors)
    for tensor_name, values in model.tensors.items():
        assert file.tensor(tensor_name).shape == values.shape
        np.testing.assert_array_equal(file.raw(tensor_name).reshape(-1).view(np.float32), values.reshape(-1))
