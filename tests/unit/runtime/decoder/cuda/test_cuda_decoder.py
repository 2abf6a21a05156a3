"""The runner on a card: what it refuses without one, its inputs and its pages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from edge_rag.core.placement import Provider
from edge_rag.errors import InferenceFailed, ProviderUnavailable
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder, DevicePages, step_inputs
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from tests.support.accelerators.cuda import cuda_copy, greedily
from tests.support.accelerators.gpu import needs_cuda
from tests.synthetic.tiny_model import FIXTURES

SMALL = Path(__file__).parents[4] / "fixtures" / "quoter"

STEP = PackedStep(
    input_ids=np.arange(5),
    positions=np.array([7, 8, 9, 0, 31], np.int32),
    slot_mapping=np.array([7, 8, 9, 32, 95], np.int32),
    cumulative_sequence_lengths=np.array([0, 3, 4, 5, 5], np.int32),
    block_table=np.array([[0], [1], [2], [3]], np.int32),
    logits_indices=np.array([2, 4]),
)
"""Three tokens of a sequence that has 7, the first of one, the 32nd of one, and none of one."""


def test_past_lengths_and_bounds_follow_from_the_positions() -> None:
    inputs = step_inputs(STEP)
    assert inputs["past_sequence_lengths"].tolist() == [7, 0, 31, 0]
    assert inputs["past_sequence_lengths"].dtype == np.int32
    assert inputs["attention_metadata"].tolist() == [3, 32, 32]


def test_a_step_without_logits_computes_one_row() -> None:
    assert step_inputs(replace(STEP, logits_indices=np.array([], np.int64)))["logits_indices"].tolist() == [0]


def test_tokens_with_a_gap_between_them_are_refused() -> None:
    with pytest.raises(InferenceFailed, match="do not follow each other"):
        step_inputs(replace(STEP, positions=np.array([7, 8, 10, 0, 31], np.int32)))


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="this ONNX Runtime has CUDA")
def test_without_the_provider_it_says_what_to_install() -> None:
    with pytest.raises(ProviderUnavailable, match="onnxruntime-gpu") as refused:
        CudaDecoder.open(SMALL, 4, {})
    assert refused.value.provider == Provider.CUDA.value


def test_keys_and_values_take_a_byte_each() -> None:
    memory = DevicePages(read_geometry(SMALL), 4, "cpu", 0)
    assert memory.page_bytes == 2 * 6 * 32 * 2 * 64
    assert {cache.numpy().nbytes for cache in memory.caches.values()} == {4 * 32 * 2 * 64}


@needs_cuda
def test_a_model_without_a_cuda_form_is_refused_with_how_to_make_one() -> None:
    with pytest.raises(ProviderUnavailable, match="edge-rag models calibrate"):
        CudaDecoder.open(SMALL, 4, {})


@needs_cuda
def test_captured_graphs_are_refused() -> None:
    with pytest.raises(ProviderUnavailable, match="enable_cuda_graph"):
        CudaDecoder.open(SMALL, 4, {"enable_cuda_graph": "1"})


@needs_cuda
def test_on_a_gpu_the_default_model_writes_the_same_text_as_on_processor_cores(tmp_path: Path) -> None:
    with np.load(FIXTURES / "quoter.npz") as stored:
        prompt = stored["token_ids"][:96]
    folder = cuda_copy(SMALL, tmp_path / "quoter", prompt)
    decoders = (PagedDecoder.open(folder, 8), CudaDecoder.open(folder, 8, {}))
    written = [greedily(decoder, prompt, 40) for decoder in decoders]
    assert written[0] == written[1]
