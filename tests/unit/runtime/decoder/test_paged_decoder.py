"""The decoder alone: what it tells, what it refuses, and that a page is nothing but its bytes."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from tests.synthetic.tiny_model import FIXTURES, Sequence, run

FOLDER = FIXTURES / "tiny-qwen2"
TEXT = np.random.default_rng(0).integers(3, 512, 80)


@pytest.fixture
def decoder() -> PagedDecoder:
    return PagedDecoder.open(FOLDER, pages=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "model"))


def last_token(sequence: Sequence) -> PackedStep:
    position = sequence.done
    slot = sequence.pages[position // 32] * 32 + position % 32
    return PackedStep(
        sequence.token_ids[position : position + 1],
        np.array([position], np.int32),
        np.array([slot], np.int32),
        np.array([0, 1], np.int32),
        sequence.pages[None],
        np.array([0]),
    )


def test_the_sizes_are_known_before_and_after_opening(decoder: PagedDecoder) -> None:
    geometry = read_geometry(FOLDER)
    assert decoder.pages == 8
    assert (decoder.vocabulary_size, decoder.max_context, decoder.page_tokens) == (512, 512, 32)
    assert decoder.end_tokens == {2}
    assert decoder.page_bytes == geometry.page_bytes == 2 * 2 * 32 * (64 + 4)


def test_logits_come_in_the_requested_order(decoder: PagedDecoder) -> None:
    sequence = Sequence(TEXT, np.arange(3, dtype=np.int32))
    every = run(decoder, [(sequence, 80)])[0]
    order = np.arange(80, dtype=np.int32)
    step = PackedStep(TEXT, order, order, np.array([0, 80], np.int32), sequence.pages[None], np.array([70, 3, 70]))
    chosen = decoder.run(step)
    np.testing.assert_allclose(chosen, every[[70, 3, 70]], rtol=1e-5, atol=1e-5)


def test_a_step_without_logits_still_stores_its_tokens(decoder: PagedDecoder) -> None:
    expected = run(decoder, [(Sequence(TEXT, np.arange(3, dtype=np.int32)), 80)])[0]
    order = np.arange(79, dtype=np.int32)
    pages = np.array([[5, 6, 7]], np.int32)
    slots = pages[0, order // 32] * 32 + order % 32
    silent = PackedStep(TEXT[:79], order, slots, np.array([0, 79], np.int32), pages, np.array([], np.int64))
    assert decoder.run(silent).shape == (0, 512)
    logits = run(decoder, [(Sequence(TEXT, pages[0], done=79), 1)])[0]
    np.testing.assert_allclose(logits, expected[79:], rtol=1e-4, atol=1e-4)


def test_a_refused_step_leaves_every_sequence_as_it_was(decoder: PagedDecoder) -> None:
    sequence = Sequence(TEXT, np.array([2, 1, 0], np.int32))
    run(decoder, [(sequence, 79)])
    expected = decoder.run(last_token(sequence)).copy()
    step = last_token(sequence)
    for wrong in (
        dataclasses.replace(step, input_ids=np.array([512])),
        dataclasses.replace(step, slot_mapping=np.array([5], np.int32)),
        dataclasses.replace(step, block_table=np.array([[2, 1, 8]], np.int32)),
    ):
        with pytest.raises(InferenceFailed):
            decoder.run(wrong)
    np.testing.assert_array_equal(decoder.run(step), expected)


def test_two_decoders_of_one_model_do_not_share_pages(decoder: PagedDecoder) -> None:
    other = PagedDecoder.open(FOLDER, pages=8)
    mine = Sequence(TEXT, np.arange(3, dtype=np.int32))
    run(decoder, [(mine, 79)])
    expected = decoder.run(last_token(mine)).copy()
    run(other, [(Sequence(TEXT[::-1].copy(), np.arange(3, dtype=np.int32)), 80)])
    np.testing.assert_array_equal(decoder.run(last_token(mine)), expected)


def test_a_folder_without_the_paged_form_is_refused(folder: Path) -> None:
    (folder / "paged.json").unlink()
    with pytest.raises(ModelFolderInvalid, match="is not in the paged form"):
        PagedDecoder.open(folder, pages=8)


def test_a_graph_that_differs_from_its_description_is_refused(folder: Path) -> None:
    description = json.loads((folder / "paged.json").read_text())
    (folder / "paged.json").write_text(json.dumps(description | {"kv_heads": 2}))
    with pytest.raises(ModelFolderInvalid, match="disagree"):
        PagedDecoder.open(folder, pages=8)


@pytest.mark.parametrize("name", ["paged.onnx", "paged.onnx.data"])
def test_a_truncated_file_is_an_error_that_names_the_model(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"paged\.onnx"):
        PagedDecoder.open(folder, pages=8)


def test_pages_that_do_not_fit_in_memory_are_an_error_with_the_numbers() -> None:
    with pytest.raises(ModelError, match="10000000000 pages of 8704 bytes"):
        PagedDecoder.open(FOLDER, pages=10**10)
