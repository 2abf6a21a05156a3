"""Qualcomm Hexagon NPUs through QNN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ProviderUnavailable
from edge_rag.runtime.session.providers.spec import (
    Accelerator,
    DriverEvidence,
    GraphForm,
    GraphRequest,
    Plugin,
    ProviderSpec,
)

_BACKEND: Final = "backend_path"
_HTP: Final = "libQnnHtp.so"


def _has_npu(evidence: DriverEvidence) -> bool:
    return any("cdsp" in node or "adsprpc" in node for node in evidence.nodes)


QUALCOMM_NPU: Final = Accelerator("qualcomm-npu", "the NPU", ("fastrpc-*", "adsprpc-*"), _has_npu)


def session_options(options: Mapping[str, str], graph: GraphRequest) -> dict[str, str]:
    """Adds the plugin's own backend where the profile names none."""
    own = dict(options)
    if graph.plugin is not None:
        own.setdefault(_BACKEND, str(graph.plugin.with_name(_HTP)))
    if not Path(own[_BACKEND]).is_file():
        raise ProviderUnavailable(Provider.QNN.value, f"its backend {own[_BACKEND]} is not there")
    # The NPU quantizes inputs and outputs too; otherwise two nodes would be left to the CPU.
    own["offload_graph_io_quantization"] = "0"
    return own


SPEC: Final = ProviderSpec(
    provider=Provider.QNN,
    ort_name="QNNExecutionProvider",
    distribution="onnxruntime-qnn",
    device="npu",
    device_kinds=("npu", "gpu", "cpu"),
    form=GraphForm.FIXED,
    encoder_precisions=(Precision.A16W8,),
    accelerators=(QUALCOMM_NPU,),
    probed_libraries=("libQnnHtp",),
    library_folders=("opt/qcom/aistack/lib*",),
    library_modules=("onnxruntime_qnn",),
    # The plugin for x86-64 contains a simulator of the NPU.
    simulated_on=frozenset({"x86_64", "AMD64"}),
    plugin=Plugin("onnxruntime_qnn", sdk_version="qnn_version", backend_option=_BACKEND),
    session_options=session_options,
)
