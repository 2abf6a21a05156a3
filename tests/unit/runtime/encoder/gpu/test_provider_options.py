from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_rag.core.placement import ModelStage, Precision
from edge_rag.device.profile_file import builtin_profiles
from edge_rag.errors import ConfigurationError
from edge_rag.runtime.encoder.batching import graph_lengths
from edge_rag.runtime.encoder.gpu.padded_encoders import rows_of
from edge_rag.runtime.encoder.gpu.provider_options import ShapeProfile, cuda_options, openvino_options, tensorrt_options

FOLDER = Path("/var/lib/compiled/m-tensorrt-1")
INPUTS = ("input_ids", "attention_mask")


@pytest.mark.parametrize("longest", [16, 48, 128, 256, 512, 8192])
def test_every_shape_that_is_run_lies_within_the_profile(longest: int) -> None:
    lengths = graph_lengths(longest)
    shapes = ShapeProfile.of(lengths)
    run = [(rows_of(length), length) for length in lengths]
    assert shapes.usual in run
    for axis in (0, 1):
        assert shapes.least[axis] == min(shape[axis] for shape in run)
        assert shapes.most[axis] == max(shape[axis] for shape in run)


def test_tensorrt_is_told_every_shape_and_keeps_engines_in_the_folder() -> None:
    shapes = ShapeProfile.of((32, 64, 128, 256))
    assert tensorrt_options({}, INPUTS, shapes, Precision.FP16, FOLDER) == {
        "trt_fp16_enable": "1",
        "trt_profile_min_shapes": "input_ids:2x32,attention_mask:2x32",
        "trt_profile_opt_shapes": "input_ids:4x128,attention_mask:4x128",
        "trt_profile_max_shapes": "input_ids:16x256,attention_mask:16x256",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(FOLDER),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(FOLDER),
    }
    assert tensorrt_options({}, INPUTS, shapes, Precision.FP32, FOLDER)["trt_fp16_enable"] == "0"


def test_a_profile_says_more_of_tensorrt_but_not_where_engines_lie() -> None:
    given = {"trt_builder_optimization_level": "5", "trt_engine_cache_path": "/tmp/anyone"}
    made = tensorrt_options(given, INPUTS, ShapeProfile.of((32,)), Precision.FP16, FOLDER)
    assert made["trt_builder_optimization_level"] == "5"
    assert made["trt_engine_cache_path"] == str(FOLDER)


def test_the_precision_of_the_profile_decides_whatever_its_options_say() -> None:
    made = tensorrt_options({"trt_fp16_enable": "1"}, INPUTS, ShapeProfile.of((32,)), Precision.FP32, FOLDER)
    assert made["trt_fp16_enable"] == "0"


def test_cuda_has_a_limit_that_holds_the_weights_twice_and_grows_by_what_is_needed() -> None:
    made = cuda_options({}, 300 << 20)
    assert int(made["gpu_mem_limit"]) == (600 << 20) + (512 << 20)
    assert made["arena_extend_strategy"] == "kSameAsRequested"
    assert cuda_options({"gpu_mem_limit": "5"}, 1)["gpu_mem_limit"] == "5"


def test_openvino_keeps_graphs_in_the_folder_and_whatever_else_the_profile_says() -> None:
    made = openvino_options({"load_config": '{"CACHE_DIR": "/x", "NUM_STREAMS": "1"}'}, Precision.FP16, FOLDER)
    assert json.loads(made["load_config"]) == {"CACHE_DIR": str(FOLDER), "NUM_STREAMS": "1"}
    made = openvino_options({}, Precision.FP32, FOLDER)
    assert json.loads(made["load_config"]) == {"CACHE_DIR": str(FOLDER), "INFERENCE_PRECISION_HINT": "F32"}


def test_options_of_openvino_that_are_no_json_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"openvino\.options\.load_config is not a JSON object"):
        openvino_options({"load_config": "[1"}, Precision.FP16, FOLDER)


def test_every_profile_with_tensorrt_or_cuda_computes_encoders_in_a_precision_they_have_there() -> None:
    for profile in builtin_profiles():
        for stage in (ModelStage.EMBEDDER, ModelStage.RERANKER):
            for choice in profile.stages[stage].providers:
                if choice.provider.value in ("cuda", "tensorrt", "openvino"):
                    assert choice.precision in (Precision.FP16, Precision.FP32)
