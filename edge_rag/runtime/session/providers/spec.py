"""Everything the program knows about one execution provider, as data and pure functions.

The specs import neither ONNX Runtime nor NumPy, so that reading a device's facts and choosing a profile load neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from edge_rag.core.placement import Precision, Provider


class GraphForm(Enum):
    """Form of the encoder graph that a provider runs.

    PACKED: texts back to back without padding, for the CPU kernels of this package. PADDED: rectangles of a few shapes,
    in fp16 or fp32. FIXED: one quantized graph for each length, compiled ahead.
    """

    PACKED = "packed"
    PADDED = "padded"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class DriverEvidence:
    """The accelerators that the operating system reports.

    Attributes:
        nodes: Device files, for example ``/dev/nvidia0``.
        vendors: PCI vendor ids, such as ``0x8086``, of the devices in the kernel's classes ``drm`` (render nodes) and
            ``accel``.
        nvidia_driver: Version of NVIDIA's kernel module; None where it is not loaded.
    """

    nodes: tuple[str, ...]
    vendors: Mapping[str, frozenset[str]]
    nvidia_driver: str | None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A kind of hardware other than processor cores that providers use.

    Attributes:
        name: Name in device profiles and in JSON output, for example ``intel-npu``.
        node: Device file that a process needs access to; None where the driver alone decides.
        pci_vendor: Vendor id of display cards, which may be plugged in without a driver; None for built-in hardware.
        card: Such a card, in advice; empty for built-in hardware.
    """

    name: str
    label: str
    nodes: tuple[str, ...]
    present: Callable[[DriverEvidence], bool]
    node: str | None = None
    pci_vendor: str | None = None
    card: str = ""


@dataclass(frozen=True, slots=True)
class Plugin:
    """The library of a provider that is not part of ONNX Runtime itself.

    Attributes:
        sdk_version: Attribute of the module's build information with the version of the vendor's SDK; None without one.
        backend_option: Option of the provider with the path of a second library; None without one.
    """

    module: str
    sdk_version: str | None = None
    backend_option: str | None = None


@dataclass(frozen=True, slots=True)
class FolderCache:
    """A provider that writes what it compiles into a folder, and reads it from there at the next start.

    What it wrote fits one set of versions and one device. A plugin reports both; for a provider that is built into ONNX
    Runtime, they are read from the machine:

    Attributes:
        libraries: Driver libraries whose versions count, without suffix.
    """

    libraries: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """The shapes [texts, tokens] that an input with free dimensions takes.

    Attributes:
        least: The fewest texts and the fewest tokens.
        usual: The shape of most runs.
        most: The most texts and the most tokens; no single run has both.
    """

    least: tuple[int, int]
    usual: tuple[int, int]
    most: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """A graph to open on a provider.

    Attributes:
        cache: Folder for compiled graphs of the provider; None where nothing is kept.
        plugin: The provider's library; None for providers that are built into ONNX Runtime.
    """

    precision: Precision
    bytes: int
    shapes: Mapping[str, ShapeRange]
    cache: Path | None
    plugin: Path | None


def as_given(options: Mapping[str, str], _: GraphRequest) -> dict[str, str]:
    return dict(options)


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One execution provider.

    Attributes:
        requirement: All there is to install, where that is more than the distribution; else empty.
        device: Its device in metrics: ``cpu``, ``gpu``, ``npu``, or its own name where that varies.
        device_kinds: Kinds of devices it runs on, preferred first.
        decoder_precisions: Precisions that generators can have on it; empty where generators do not run on it.
        libraries: Driver libraries it needs, without suffix, for example ``libcudart``.
        plugin: Its library; None where it is built into ONNX Runtime.
        session_options: Returns the options of a session out of the device profile's, which win except where noted.
        cache: How it keeps compiled graphs; None where it does not.
    """

    provider: Provider
    ort_name: str
    distribution: str
    device: str
    device_kinds: tuple[str, ...]
    form: GraphForm
    encoder_precisions: tuple[Precision, ...]
    requirement: str = ""
    decoder_precisions: tuple[Precision, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    libraries: tuple[str, ...] = ()
    probed_libraries: tuple[str, ...] = ()
    library_folders: tuple[str, ...] = ()
    library_modules: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    simulated_on: frozenset[str] = frozenset()
    advised: bool = True
    plugin: Plugin | None = None
    session_options: Callable[[Mapping[str, str], GraphRequest], dict[str, str]] = as_given
    cache: FolderCache | None = None
