import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.core.placement import ModelStage, Precision, Provider
from edge_rag.device.profile import builtin_profiles
from edge_rag.errors import ConfigurationError
from edge_rag.runtime.encoder.gpu.encoders import rows_of, shape_range
from edge_rag.runtime.encoder.tokenizer import graph_lengths
from edge_rag.runtime.session.providers import ACCELERATORS, SPECS, cuda, openvino, tensorrt
from edge_rag.runtime.session.providers.spec import GraphForm, GraphRequest

FOLDER = Path("/var/lib/compiled/m-tensorrt-1")
INPUTS = ("input_ids", "attention_mask")


def request(precision: Precision = Precision.FP16, lengths: tuple[int, ...] = (32,), size: int = 1) -> GraphRequest:
    return GraphRequest(precision, size, dict.fromkeys(INPUTS, shape_range(lengths)), FOLDER, None)


def test_every_provider_has_one_spec_and_every_accelerator_one_name() -> None:
    assert SPECS.keys() == set(Provider)
    assert all(spec.provider is provider for provider, spec in SPECS.items())
    assert len({spec.ort_name for spec in SPECS.values()}) == len(SPECS)
    used = {accelerator for spec in SPECS.values() for accelerator in spec.accelerators}
    assert used == set(ACCELERATORS.values())
    assert all(accelerator.name == name for name, accelerator in ACCELERATORS.items())


def test_reading_specs_and_facts_loads_neither_onnx_runtime_nor_numpy() -> None:
    program = "import sys, edge_rag.device.probe; print({'onnxruntime', 'numpy', 'onnx'} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


@pytest.mark.parametrize("longest", [16, 48, 128, 256, 512, 8192])
def test_every_shape_that_is_run_lies_within_the_declared_range(longest: int) -> None:
    lengths = graph_lengths(longest)
    shapes = shape_range(lengths)
    run = [(rows_of(length), length) for length in lengths]
    assert shapes.usual in run
    for axis in (0, 1):
        assert shapes.least[axis] == min(shape[axis] for shape in run)
        assert shapes.most[axis] == max(shape[axis] for shape in run)


def test_tensorrt_gets_every_shape_and_keeps_engines_in_the_folder() -> None:
    lengths = (32, 64, 128, 256)
    assert tensorrt.session_options({}, request(lengths=lengths)) == {
        "trt_fp16_enable": "1",
        "trt_profile_min_shapes": "input_ids:2x32,attention_mask:2x32",
        "trt_profile_opt_shapes": "input_ids:4x128,attention_mask:4x128",
        "trt_profile_max_shapes": "input_ids:16x256,attention_mask:16x256",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(FOLDER),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(FOLDER),
    }
    exact = tensorrt.session_options({"trt_fp16_enable": "1"}, request(Precision.FP32, lengths))
    assert exact["trt_fp16_enable"] == "0"


def test_a_profile_adds_options_of_tensorrt_but_cannot_move_its_cache() -> None:
    given = {"trt_builder_optimization_level": "5", "trt_engine_cache_path": "/tmp/anyone"}
    made = tensorrt.session_options(given, request())
    assert made["trt_builder_optimization_level"] == "5"
    assert made["trt_engine_cache_path"] == str(FOLDER)


def test_the_memory_limit_of_cuda_holds_the_weights_twice_and_grows_by_the_requested_size() -> None:
    made = cuda.session_options({}, request(size=300 << 20))
    assert int(made["gpu_mem_limit"]) == (600 << 20) + (512 << 20)
    assert made["arena_extend_strategy"] == "kSameAsRequested"
    assert cuda.session_options({"gpu_mem_limit": "5"}, request())["gpu_mem_limit"] == "5"


def test_openvino_keeps_graphs_in_the_folder_and_the_other_options_of_the_profile() -> None:
    given = {"load_config": '{"CACHE_DIR": "/x", "NUM_STREAMS": "1"}'}
    made = openvino.session_options(given, request())
    assert json.loads(made["load_config"]) == {"CACHE_DIR": str(FOLDER), "NUM_STREAMS": "1"}
    made = openvino.session_options({}, request(Precision.FP32))
    assert json.loads(made["load_config"]) == {"CACHE_DIR": str(FOLDER), "INFERENCE_PRECISION_HINT": "F32"}


def test_options_of_openvino_that_are_not_json_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"openvino\.options\.load_config is not a JSON object"):
        openvino.session_options({"load_config": "[1"}, request())


@pytest.mark.parametrize("provider", [Provider.TENSORRT, Provider.OPENVINO])
def test_without_a_cache_folder_nothing_is_stored(provider: Provider) -> None:
    made = SPECS[provider].session_options({}, replace(request(), cache=None))
    assert not any("CACHE_DIR" in value or "cache" in key for key, value in made.items())


def test_every_profile_names_a_precision_that_encoders_have_on_the_provider() -> None:
    for profile in builtin_profiles():
        for stage in (ModelStage.EMBEDDER, ModelStage.RERANKER):
            for choice in profile.stages[stage].providers:
                spec = SPECS[choice.provider]
                assert choice.precision in spec.encoder_precisions
                if spec.form is GraphForm.PADDED:
                    assert choice.precision in (Precision.FP16, Precision.FP32)
