"""Encoders with the graph for GPUs, opened on the cores, where ONNX Runtime's own kernels run it."""

from functools import cache
from pathlib import Path

import onnxruntime as ort
import pytest

from edge_rag.core.placement import Precision, Provider
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.gpu.encoders import (
    EngineBuildStarted,
    EngineIdentity,
    GpuTarget,
    ShapeReady,
    open_pair_encoder_on_gpu,
    open_text_encoder_on_gpu,
)
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.support.accelerators.npu import CROSS_ENCODER, EMBEDDER

IDENTITY = EngineIdentity("libcudart 12.6, libnvinfer 10.9", "x86_64; a card")

needs_cuda = pytest.mark.skipif(
    "CUDAExecutionProvider" not in ort.get_available_providers(),
    reason="this ONNX Runtime was built without CUDA, so there is no GPU to run on",
)
needs_tensorrt = pytest.mark.skipif(
    "TensorrtExecutionProvider" not in ort.get_available_providers(),
    reason="this ONNX Runtime was built without TensorRT, so there is no engine to build",
)


def place(compiled: Path, provider: Provider = Provider.CPU, precision: Precision = Precision.FP16) -> GpuTarget:
    return GpuTarget(provider, precision, {}, IDENTITY, compiled)


def ignore(event: EngineBuildStarted | ShapeReady) -> None:
    """Accepts a progress event."""


@cache
def padded_text_encoder(precision: Precision) -> TextEncoder:
    """The small embedder."""
    return open_text_encoder_on_gpu(EMBEDDER, place(Path("unused"), precision=precision), ignore)


@cache
def padded_pair_encoder(precision: Precision) -> PairEncoder:
    """A cross-encoder of two small layers."""
    return open_pair_encoder_on_gpu(CROSS_ENCODER, place(Path("unused"), precision=precision), ignore)
