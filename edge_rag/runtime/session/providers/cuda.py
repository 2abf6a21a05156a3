"""NVIDIA GPUs through CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge_rag.core.placement import Precision, Provider
from edge_rag.runtime.session.providers.spec import (
    Accelerator,
    DriverEvidence,
    GraphForm,
    GraphRequest,
    ProviderSpec,
)

_CARD: Final = "/dev/nvidia0"
_TEGRA_NODES: Final = ("nvhost-gpu", "nvgpu", "nvmap")
_RESULTS_BYTES: Final = 512 << 20


def _is_tegra(evidence: DriverEvidence) -> bool:
    return any(f"/dev/{node}" in evidence.nodes for node in _TEGRA_NODES)


def _is_card(evidence: DriverEvidence) -> bool:
    # A service may be denied the card's files while the driver is loaded: that is reported as an obstacle, not as a
    # machine without a card. Recent Jetsons have a card's device file too, for the GPU that shares the board's memory.
    return not _is_tegra(evidence) and (_CARD in evidence.nodes or evidence.nvidia_driver is not None)


NVIDIA_GPU: Final = Accelerator(
    name="nvidia-gpu",
    label="the NVIDIA card",
    nodes=("nvidia[0-9]*",),
    present=_is_card,
    node=_CARD,
    pci_vendor="0x10de",
    card="an NVIDIA card",
)
TEGRA_GPU: Final = Accelerator(name="tegra-gpu", label="the GPU", nodes=_TEGRA_NODES, present=_is_tegra)


def session_options(options: Mapping[str, str], graph: GraphRequest) -> dict[str, str]:
    """Bounds the memory of a session; the profile's options win."""
    chosen = {
        # Weights exist twice while they are converted to the layout that the kernels read.
        "gpu_mem_limit": str(2 * graph.bytes + _RESULTS_BYTES),
        # Doubling would leave up to half of the memory unused, and a board's GPU shares it with everything else.
        "arena_extend_strategy": "kSameAsRequested",
    }
    return chosen | dict(options)


SPEC: Final = ProviderSpec(
    provider=Provider.CUDA,
    ort_name="CUDAExecutionProvider",
    distribution="onnxruntime-gpu",
    device="gpu",
    device_kinds=("gpu",),
    form=GraphForm.PADDED,
    encoder_precisions=(Precision.MODEL, Precision.FP16, Precision.FP32),
    decoder_precisions=(Precision.FP16,),
    accelerators=(NVIDIA_GPU, TEGRA_GPU),
    libraries=("libcudart",),
    probed_libraries=("libcuda", "libcudnn"),
    library_folders=(
        "usr/local/cuda*/lib64",
        "usr/local/cuda*/targets/*/lib",
        "usr/lib/*-linux-gnu/nvidia",
        "usr/lib/*-linux-gnu/tegra",
        "usr/lib/wsl/lib",
    ),
    library_modules=("nvidia",),
    session_options=session_options,
)
