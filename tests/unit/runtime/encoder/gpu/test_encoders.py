from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ModelFolderInvalid, ProviderUnavailable
from edge_rag.runtime.encoder.gpu.encoders import (
    EngineBuildStarted,
    ShapeReady,
    open_pair_encoder_on_gpu,
    open_text_encoder_on_gpu,
)
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole
from tests.support.accelerators.gpu import ignore, needs_cuda, needs_tensorrt, padded_text_encoder, place
from tests.support.accelerators.npu import CROSS_ENCODER, EMBEDDER, small_embedder
from tests.support.model_folders import describe_model

TEXTS = ["How often must the bearings be greased?", "valve", "Never plug a relief valve that lifts."]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_embedder(tmp_path_factory.mktemp("models") / "small")


def test_every_length_is_run_and_reported_before_an_encoder_is_returned(small: Path, tmp_path: Path) -> None:
    events: list[EngineBuildStarted | ShapeReady] = []
    open_text_encoder_on_gpu(small, place(tmp_path), events.append)
    assert events == [ShapeReady("small", Provider.CPU, tokens, n, 2, False) for n, tokens in ((1, 32), (2, 48))]
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_vectors_contains_the_precision(small: Path, tmp_path: Path) -> None:
    names = {
        open_text_encoder_on_gpu(small, place(tmp_path, precision=precision), ignore).name
        for precision in (Precision.FP16, Precision.FP32)
    }
    assert len(names | {TextEncoder.open(small).name}) == 3


def test_a_model_too_large_for_fp16_is_refused_with_what_to_set(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    model = onnx.load(small / "model.onnx")
    (bias,) = (each for each in model.graph.initializer if each.name == "encoder.layer.0.narrowed.bias")
    bias.CopyFrom(numpy_helper.from_array(np.full(64, 1e6, np.float32), bias.name))
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    describe_model(folder, ModelRole.EMBEDDER, "large", dimension=64, max_tokens=48)
    with pytest.raises(ProviderUnavailable, match='are no numbers; set its precision to "fp32"'):
        open_text_encoder_on_gpu(folder, place(tmp_path), ignore)
    open_text_encoder_on_gpu(folder, place(tmp_path, precision=Precision.FP32), ignore)


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="this ONNX Runtime has CUDA")
@pytest.mark.parametrize("provider", [Provider.CUDA, Provider.TENSORRT])
def test_a_provider_that_is_not_there_is_refused_before_anything_is_prepared(
    provider: Provider, tmp_path: Path
) -> None:
    compiled = tmp_path / "compiled"
    for refused in (
        lambda: open_text_encoder_on_gpu(EMBEDDER, place(compiled, provider), ignore),
        lambda: open_pair_encoder_on_gpu(CROSS_ENCODER, place(compiled, provider), ignore),
    ):
        with pytest.raises(ProviderUnavailable, match=f"{provider.value} cannot be used: .*built without it"):
            refused()
    assert not compiled.exists()


def test_a_model_of_the_other_kind_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid):
        open_pair_encoder_on_gpu(small, place(tmp_path), ignore)
    with pytest.raises(ModelFolderInvalid):
        open_text_encoder_on_gpu(CROSS_ENCODER, place(tmp_path), ignore)


def test_a_foreign_export_is_unavailable_so_that_the_next_provider_is_tried(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailable, match="models add"):
        open_pair_encoder_on_gpu(CROSS_ENCODER.with_name("tiny-cross-encoder"), place(tmp_path), ignore)


@needs_cuda
def test_cuda_runs_the_whole_graph_as_the_cores_do(tmp_path: Path) -> None:
    on_gpu = open_text_encoder_on_gpu(EMBEDDER, place(tmp_path, Provider.CUDA), ignore)
    assert (on_gpu.embed(TEXTS) * padded_text_encoder(Precision.FP32).embed(TEXTS)).sum(axis=1).min() > 0.999


@needs_tensorrt
def test_tensorrt_builds_an_engine_once_and_again_when_it_was_altered(tmp_path: Path) -> None:
    def begun() -> bool:
        events: list[EngineBuildStarted | ShapeReady] = []
        encoder = open_text_encoder_on_gpu(EMBEDDER, place(tmp_path, Provider.TENSORRT), events.append)
        assert (encoder.embed(TEXTS) * padded_text_encoder(Precision.FP32).embed(TEXTS)).sum(axis=1).min() > 0.999
        return isinstance(events[0], EngineBuildStarted)

    assert [begun(), begun()] == [True, False]
    for engine in tmp_path.glob("*/*"):
        if engine.name != "compiled.json":
            engine.write_bytes(b"not an engine")
    assert begun()
