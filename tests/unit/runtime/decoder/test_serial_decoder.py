import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.serial_decoder import SerialDecoder, read_serial_sizes
from tests.synthetic.serial_model import genai_folder
from tests.synthetic.tiny_model import FIXTURES

TOKENS = np.arange(3, 60, dtype=np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return genai_folder(tmp_path_factory.mktemp("serial") / "model")


@pytest.fixture
def decoder(folder: Path) -> SerialDecoder:
    return SerialDecoder.open(folder, 64)


def two_sequences() -> PackedStep:
    return PackedStep(
        input_ids=TOKENS[:2],
        positions=np.zeros(2, np.int32),
        slot_mapping=np.zeros(2, np.int32),
        cumulative_sequence_lengths=np.array([0, 1, 2], np.int32),
        block_table=np.zeros((2, 1), np.int32),
        logits_indices=np.array([0, 1], np.int64),
    )


def test_sizes_and_bytes_of_a_token_come_from_the_configuration(folder: Path) -> None:
    sizes = read_serial_sizes(folder)
    assert (sizes.vocabulary_size, sizes.context_length, sizes.end_tokens) == (512, 512, frozenset({2}))
    assert sizes.token_bytes == 2 * 2 * 2 * 32 * 4
    assert SerialDecoder.open(folder, 64).page_bytes == 64 * sizes.token_bytes


def test_two_sequences_in_one_step_are_refused(decoder: SerialDecoder) -> None:
    with pytest.raises(InferenceFailed, match="one sequence at a time"):
        decoder.run(two_sequences())


@pytest.mark.parametrize("first", [3, 10, 30])
def test_a_sequence_continues_only_at_its_end(decoder: SerialDecoder, first: int) -> None:
    decoder.feed(TOKENS[:5], 0)
    with pytest.raises(InferenceFailed, match="5 tokens"):
        decoder.feed(TOKENS[first : first + 2], first)
    decoder.feed(TOKENS[5:7], 5)


def test_logits_of_a_token_before_the_last_are_refused(decoder: SerialDecoder) -> None:
    positions = np.arange(4, dtype=np.int32)
    lengths, table = np.array([0, 4], np.int32), np.zeros((1, 1), np.int32)
    step = PackedStep(TOKENS[:4], positions, positions, lengths, table, np.array([1], np.int64))
    with pytest.raises(InferenceFailed, match="last token"):
        decoder.run(step)
    assert decoder.run(replace(step, logits_indices=np.array([3], np.int64))).shape == (1, 512)


def test_a_model_with_other_logits_than_declared_fails_its_runs_and_not_the_process(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tiny-llama", tmp_path / "model")
    path = tmp_path / "model" / "genai_config.json"
    document = json.loads(path.read_text())
    document["model"]["vocab_size"] = 500
    path.write_text(json.dumps(document))
    decoder = SerialDecoder.open(tmp_path / "model", 64)
    for _ in range(2):
        with pytest.raises(InferenceFailed, match="500"):
            decoder.feed(TOKENS[:4], 0)
    with pytest.raises(InferenceFailed, match="0 tokens"):
        decoder.feed(TOKENS[4:6], 4)


def test_a_graph_that_cannot_be_opened_is_a_model_error_that_names_the_folder(tmp_path: Path) -> None:
    folder = genai_folder(tmp_path / "broken")
    (folder / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="broken"):
        SerialDecoder.open(folder, 64)


def test_a_model_without_end_tokens_is_refused(tmp_path: Path) -> None:
    folder = genai_folder(tmp_path / "endless")
    path = folder / "genai_config.json"
    document = json.loads(path.read_text())
    document["model"]["eos_token_id"] = None
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFolderInvalid, match="eos_token_id"):
        read_serial_sizes(folder)


def test_without_onnxruntime_genai_the_error_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    with pytest.raises(ModelError, match=r"pip install 'edge-rag\[genai\]'"):
        SerialDecoder.open(folder, 64)
