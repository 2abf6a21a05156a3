"""NVIDIA GPUs through TensorRT, which builds an engine for each model and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge_rag.core.placement import Precision, Provider
from edge_rag.runtime.session.providers.cuda import NVIDIA_GPU, TEGRA_GPU
from edge_rag.runtime.session.providers.spec import FolderCache, GraphForm, GraphRequest, ProviderSpec


def session_options(options: Mapping[str, str], graph: GraphRequest) -> dict[str, str]:
    """Sets shapes, precision and cache of the engine.

    All shapes are declared, so one engine is built when the session is opened. Without them the provider would build
    one at the first run, and another whenever a run has a new shape. The profile's options win over the shapes, but not
    over precision (a key of its own in the profile) and cache folder (only files there are verified). The folder must
    belong to this model, these versions and this GPU alone: the provider names an engine after the graph's nodes,
    with any weights.
    """
    ranges = graph.shapes.items()
    chosen = {
        "trt_profile_min_shapes": _written({name: shapes.least for name, shapes in ranges}),
        "trt_profile_opt_shapes": _written({name: shapes.usual for name, shapes in ranges}),
        "trt_profile_max_shapes": _written({name: shapes.most for name, shapes in ranges}),
    }
    settled = {"trt_fp16_enable": "1" if graph.precision is Precision.FP16 else "0"}
    if graph.cache is not None:
        settled |= {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(graph.cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(graph.cache),
        }
    return chosen | dict(options) | settled


def _written(shapes: Mapping[str, tuple[int, int]]) -> str:
    return ",".join(f"{name}:{texts}x{tokens}" for name, (texts, tokens) in shapes.items())


SPEC: Final = ProviderSpec(
    provider=Provider.TENSORRT,
    ort_name="TensorrtExecutionProvider",
    distribution="onnxruntime-gpu",
    requirement="onnxruntime-gpu and TensorRT",
    device="gpu",
    device_kinds=("gpu",),
    form=GraphForm.PADDED,
    encoder_precisions=(Precision.MODEL, Precision.FP16, Precision.FP32),
    accelerators=(NVIDIA_GPU, TEGRA_GPU),
    libraries=("libcudart", "libnvinfer"),
    library_modules=("tensorrt_libs",),
    distributions=("tensorrt",),
    # CUDA is advised for the same hardware.
    advised=False,
    session_options=session_options,
    cache=FolderCache(libraries=("libcudart", "libcudnn", "libnvinfer"), distributions=("onnxruntime-gpu", "tensorrt")),
)
