"""Intel GPUs and NPUs through OpenVINO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ConfigurationError
from edge_rag.runtime.model_folder.strict_json import parse_object
from edge_rag.runtime.session.providers.spec import (
    Accelerator,
    DriverEvidence,
    FolderCache,
    GraphForm,
    GraphRequest,
    Plugin,
    ProviderSpec,
)

_INTEL: Final = "0x8086"
_LOAD_CONFIG: Final = "load_config"


def _has_gpu(evidence: DriverEvidence) -> bool:
    return _INTEL in evidence.vendors["drm"]


def _has_npu(evidence: DriverEvidence) -> bool:
    return _INTEL in evidence.vendors["accel"]


INTEL_GPU: Final = Accelerator("intel-gpu", "the processor's GPU", ("dri/renderD*",), _has_gpu)
INTEL_NPU: Final = Accelerator("intel-npu", "the NPU", ("accel/accel*",), _has_npu)


def session_options(options: Mapping[str, str], graph: GraphRequest) -> dict[str, str]:
    """Sets precision and cache folder inside ``load_config``; the profile's options win except for the cache folder."""
    try:
        own = parse_object(options.get(_LOAD_CONFIG, "{}").encode())
    except ValueError as error:
        raise ConfigurationError(f"profile: openvino.options.{_LOAD_CONFIG} is not a JSON object: {error}") from error
    # A GPU computes fp32 graphs in fp16 by default.
    chosen = {"INFERENCE_PRECISION_HINT": "F32"} if graph.precision is Precision.FP32 else {}
    cache = {} if graph.cache is None else {"CACHE_DIR": str(graph.cache)}
    return {**options, _LOAD_CONFIG: json.dumps({**chosen, **own, **cache}, sort_keys=True)}


SPEC: Final = ProviderSpec(
    provider=Provider.OPENVINO,
    ort_name="OpenVINOExecutionProvider",
    distribution="onnxruntime-ep-openvino",
    device="openvino",
    # An Intel NPU needs fixed shapes, the GPU beside it takes any.
    device_kinds=("gpu", "npu", "cpu"),
    form=GraphForm.PADDED,
    encoder_precisions=(Precision.MODEL, Precision.FP16, Precision.FP32),
    accelerators=(INTEL_NPU, INTEL_GPU),
    probed_libraries=("libopenvino",),
    library_folders=("opt/intel/openvino*/runtime/lib/*",),
    library_modules=("openvino",),
    distributions=("onnxruntime-openvino", "openvino"),
    plugin=Plugin("onnxruntime_ep_openvino"),
    session_options=session_options,
    cache=FolderCache(),
)
