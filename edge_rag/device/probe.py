"""Reads the facts of a machine once: hardware, drivers, libraries and installed providers; loads none of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from edge_rag.core.placement import ProviderDevice
from edge_rag.device.facts import DeviceFacts, DriverFacts
from edge_rag.device.hardware import read_board, read_memory, read_processor, read_thermal, text_of
from edge_rag.runtime.session.providers import ACCELERATORS, SPECS
from edge_rag.runtime.session.providers.spec import Accelerator, DriverEvidence

_DISPLAY: Final = "0x03"  # base class of PCI devices that draw or compute
_FOLDERS: Final = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib")


def probe(devices: tuple[ProviderDevice, ...] = ()) -> DeviceFacts:
    """Reads the facts of this machine.

    Args:
        devices: Devices that ONNX Runtime reports; only ``runtime`` may import it.
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
    """Reads the facts of a machine whose files are below a root.

    Args:
        allowed: Cores this process may run on; None for all.
        built_for_cuda: Version of CUDA that ONNX Runtime was built for; None without CUDA.
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
    for name in dict.fromkeys(name for spec in SPECS.values() for name in (spec.distribution, *spec.distributions)):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _built_for_cuda() -> str | None:
    spec = importlib.util.find_spec("onnxruntime")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        text = text_of(Path(place) / "capi" / "build_and_package_info.py") or ""
        if found := re.search(r"""^cuda_version\s*=\s*["']([\d.]+)["']""", text, re.MULTILINE):
            return found[1]
    return None


def _library_folders() -> list[Path]:
    folders = [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    for name in (module for spec in SPECS.values() for module in spec.library_modules):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            folders += [Path(place), *Path(place).glob("*/lib"), *Path(place).glob("libs")]
    return folders


def read_drivers(
    root: Path,
    packages: Mapping[str, str],
    library_folders: Iterable[Path] = (),
    built_for_cuda: str | None = None,
) -> DriverFacts:
    """Looks for accelerators, drivers and libraries.

    Args:
        built_for_cuda: Version of CUDA that ONNX Runtime was built for; None without CUDA.
    """
    nodes = tuple(_nodes(root))
    driver = _driver(root)
    vendors = {
        kind: frozenset(text_of(each / "device/vendor") or "" for each in (root / "sys/class" / kind).glob(pattern))
        for kind, pattern in (("drm", "renderD*"), ("accel", "accel*"))
    }
    evidence = DriverEvidence(nodes, vendors, driver)
    found = frozenset(each for each in ACCELERATORS.values() if each.present(evidence))
    return DriverFacts(
        accelerators=found,
        without_driver=tuple(_without_driver(root, found)),
        nodes=nodes,
        libraries=_libraries(root, library_folders),
        packages=dict(packages),
        driver=driver,
        gpus=tuple(_gpus(root)),
        built_for_cuda=built_for_cuda,
    )


def _nodes(root: Path) -> Iterator[str]:
    for pattern in dict.fromkeys(pattern for each in ACCELERATORS.values() for pattern in each.nodes):
        for node in sorted((root / "dev").glob(pattern)):
            yield "/" + str(node.relative_to(root))


def _without_driver(root: Path, found: frozenset[Accelerator]) -> Iterator[str]:
    """Yields display cards that are plugged in without a driver, for people."""
    cards = {each.pci_vendor: each for each in ACCELERATORS.values() if each.pci_vendor is not None}
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        card = cards.get(text_of(device / "vendor") or "")
        if card is not None and card not in found and (text_of(device / "class") or "").startswith(_DISPLAY):
            yield f"{card.card} at {device.name}"


def _libraries(root: Path, further: Iterable[Path]) -> dict[str, str]:
    """Returns the highest version of each library, as far as its file name contains one."""
    best: dict[str, tuple[int, ...]] = {}
    patterns = (*_FOLDERS, *(pattern for spec in SPECS.values() for pattern in spec.library_folders))
    folders = [folder for pattern in patterns for folder in sorted(root.glob(pattern))]
    wanted = {name for spec in SPECS.values() for name in (*spec.libraries, *spec.probed_libraries)}
    for folder in (*folders, *further):
        for library in wanted:
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
