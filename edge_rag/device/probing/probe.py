"""Reading the facts of a machine, once."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from edge_rag.core.placement import ProviderDevice
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.probing.drivers import read_drivers
from edge_rag.device.probing.hardware import read_board, read_memory, read_processor, read_thermal, text_of

PACKAGES: Final = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-qnn",
    "onnxruntime-openvino",
    "onnxruntime-ep-openvino",
    "openvino",
    "tensorrt",
)
"""Python packages that bring ONNX Runtime, execution providers, or what these need."""

_LIBRARY_PACKAGES: Final = ("nvidia", "tensorrt_libs", "onnxruntime_qnn", "openvino")


def probe(devices: tuple[ProviderDevice, ...] = ()) -> DeviceFacts:
    """Reads the facts of this machine.

    Args:
        devices: What ONNX Runtime says it can run on; only the runtime can ask it.
    """
    allowed = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return read_facts(
        Path("/"), platform.machine(), allowed, _packages(), devices, _library_folders(), _built_for_cuda()
    )


def read_facts(
    root: Path,
    machine: str,
    allowed: frozenset[int] | None,
    packages: Mapping[str, str],
    devices: tuple[ProviderDevice, ...],
    library_folders: Iterable[Path] = (),
    built_for_cuda: str | None = None,
) -> DeviceFacts:
    """Reads the facts of a machine whose files lie below a root.

    Args:
        root: ``/``, or where a recorded machine's files are.
        machine: Instruction set as the kernel names it.
        allowed: Cores this process may run on; None for all.
        packages: Versions of Python packages that bring execution providers, by name.
        devices: What ONNX Runtime says it can run on.
        library_folders: Further folders that libraries may lie in.
        built_for_cuda: Version of CUDA that ONNX Runtime was built for; None where it was built for none.
    """
    return DeviceFacts(
        processor=read_processor(root, machine, allowed),
        memory=read_memory(root),
        board=read_board(root),
        drivers=read_drivers(root, packages, library_folders, built_for_cuda),
        thermal=read_thermal(root),
        devices=devices,
    )


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _built_for_cuda() -> str | None:
    """Looks into a file that ONNX Runtime's package for CUDA has; importing it would load the libraries."""
    spec = importlib.util.find_spec("onnxruntime")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        text = text_of(Path(place) / "capi" / "build_and_package_info.py") or ""
        if found := re.search(r"""^cuda_version\s*=\s*["']([\d.]+)["']""", text, re.MULTILINE):
            return found[1]
    return None


def _library_folders() -> list[Path]:
    folders = [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    for name in _LIBRARY_PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            folders += [Path(place), *Path(place).glob("*/lib"), *Path(place).glob("libs")]
    return folders
