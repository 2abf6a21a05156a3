"""Processor cores: ONNX Runtime's own kernels and those of ``edge_rag.ops``."""

from __future__ import annotations

from typing import Final

from edge_rag.core.placement import Precision, Provider
from edge_rag.runtime.session.providers.spec import GraphForm, ProviderSpec

SPEC: Final = ProviderSpec(
    provider=Provider.CPU,
    ort_name="CPUExecutionProvider",
    distribution="onnxruntime",
    device="cpu",
    device_kinds=("cpu",),
    form=GraphForm.PACKED,
    # The model's folder decides, whichever precision a profile names.
    encoder_precisions=tuple(Precision),
    decoder_precisions=tuple(Precision),
)
