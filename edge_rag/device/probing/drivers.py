"""Finding accelerators, their drivers and their libraries, without loading any of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from edge_rag.device.facts import Accelerator, DriverFacts
from edge_rag.device.probing.hardware import text_of

_NVIDIA, _INTEL = "0x10de", "0x8086"
_DISPLAY = "0x03"  # base class of PCI devices that draw pictures or compute
_LIBRARIES: Final = ("libcuda", "libcudart", "libcudnn", "libnvinfer", "libQnnHtp", "libopenvino")
_FOLDERS: Final = (
    "usr/local/cuda*/lib64",
    "usr/local/cuda*/targets/*/lib",
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/nvidia",
    "usr/lib/*-linux-gnu/tegra",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "opt/qcom/aistack/lib*",
    "opt/intel/openvino*/runtime/lib/*",
)


def read_drivers(
    root: Path,
    packages: Mapping[str, str],
    library_folders: Iterable[Path] = (),
    built_for_cuda: str | None = None,
) -> DriverFacts:
    """Looks for accelerators.

    Args:
        root: Where ``proc``, ``sys``, ``dev``, ``usr`` and ``opt`` are.
        packages: Versions of Python packages that bring execution providers, by name.
        library_folders: Further folders that libraries may lie in.
        built_for_cuda: Version of CUDA that ONNX Runtime was built for.
    """
    nodes = tuple(_nodes(root))
    found: set[Accelerator] = set()
    driver = _driver(root)
    if "/dev/nvidia0" in nodes or driver is not None:
        # A service may be kept from the card's files while the driver runs: then it has to say so, not do without.
        found.add(Accelerator.NVIDIA_GPU)
    if any(node in nodes for node in ("/dev/nvhost-gpu", "/dev/nvgpu", "/dev/nvmap")):
        found.add(Accelerator.TEGRA_GPU)
        # Recent Jetsons have the file of a graphics card too; it is the same GPU, which shares the board's memory.
        found.discard(Accelerator.NVIDIA_GPU)
    if any("cdsp" in node or "adsprpc" in node for node in nodes):
        found.add(Accelerator.QUALCOMM_NPU)
    vendors = {
        kind: {text_of(each / "device/vendor") for each in (root / "sys/class" / kind).glob(pattern)}
        for kind, pattern in (("drm", "renderD*"), ("accel", "accel*"))
    }
    if _INTEL in vendors["drm"]:
        found.add(Accelerator.INTEL_GPU)
    if _INTEL in vendors["accel"]:
        found.add(Accelerator.INTEL_NPU)
    return DriverFacts(
        accelerators=frozenset(found),
        without_driver=tuple(_without_driver(root, found)),
        nodes=nodes,
        libraries=_libraries(root, library_folders),
        packages=dict(packages),
        driver=driver,
        gpus=tuple(_gpus(root)),
        built_for_cuda=built_for_cuda,
    )


def _nodes(root: Path) -> Iterator[str]:
    patterns = (
        "nvidia[0-9]*",
        "nvhost-gpu",
        "nvgpu",
        "nvmap",
        "fastrpc-*",
        "adsprpc-*",
        "dri/renderD*",
        "accel/accel*",
    )
    for pattern in patterns:
        for node in sorted((root / "dev").glob(pattern)):
            yield "/" + str(node.relative_to(root))


def _without_driver(root: Path, found: set[Accelerator]) -> Iterator[str]:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        display = (text_of(device / "class") or "").startswith(_DISPLAY)
        if display and text_of(device / "vendor") == _NVIDIA and Accelerator.NVIDIA_GPU not in found:
            yield f"an NVIDIA card at {device.name}"


def _libraries(root: Path, further: Iterable[Path]) -> dict[str, str]:
    """Returns the highest version of each library, as far as its file's name has it."""
    best: dict[str, tuple[int, ...]] = {}
    folders = [folder for pattern in _FOLDERS for folder in sorted(root.glob(pattern))]
    for folder in (*folders, *further):
        for library in _LIBRARIES:
            for file in folder.glob(f"{library}.so*"):
                version = tuple(int(part) for part in re.findall(r"\d+", file.name.removeprefix(f"{library}.so")))
                best[library] = max(version, best.get(library, ()))
    return {name: ".".join(map(str, version)) for name, version in sorted(best.items())}


def _gpus(root: Path) -> Iterator[str]:
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        if found := re.search(r"^Model:\s*(\S.*)$", text_of(file) or "", re.MULTILINE):
            yield found[1].strip()


def _driver(root: Path) -> str | None:
    found = re.search(r"Kernel Module\s.*?(\d+\.\d+(?:\.\d+)?)", text_of(root / "proc/driver/nvidia/version") or "")
    return found[1] if found else None
