"""Execution providers: where a session's nodes are to run, and proof that they do.

A provider that cannot be had, that does not take all of a graph, or that quietly left nodes to the CPU is an error
here, never a slower session. Whether to stop then or to go on with another provider is decided above.
"""

from __future__ import annotations

import importlib
import platform
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import onnxruntime as ort

from edge_rag.core.placement import Provider
from edge_rag.errors import ProviderUnavailable

_NAMES: Final = MappingProxyType(
    {
        Provider.CPU: "CPUExecutionProvider",
        Provider.CUDA: "CUDAExecutionProvider",
        Provider.TENSORRT: "TensorrtExecutionProvider",
        Provider.QNN: "QNNExecutionProvider",
        Provider.OPENVINO: "OpenVINOExecutionProvider",
    }
)

LIBRARY_OPTION: Final = "plugin_library"
"""An option of ours beside the provider's own: path of the plugin's library, where it is not the package's."""

_DEVICE_ORDER: Final = (
    ort.OrtHardwareDeviceType.NPU,
    ort.OrtHardwareDeviceType.GPU,
    ort.OrtHardwareDeviceType.CPU,
)
# An Intel NPU wants fixed shapes, the GPU beside it takes any.
_DEVICE_ORDERS: Final = MappingProxyType({Provider.OPENVINO: (_DEVICE_ORDER[1], _DEVICE_ORDER[0], _DEVICE_ORDER[2])})


@dataclass(frozen=True, slots=True)
class _Plugin:
    """Where a provider comes as a library of its own.

    Attributes:
        module: Python package that has the library and says where, by ``get_library_path``.
        package: What is installed to have it.
    """

    module: str
    package: str


_PLUGINS: Final = MappingProxyType(
    {
        Provider.QNN: _Plugin("onnxruntime_qnn", "onnxruntime-qnn"),
        Provider.OPENVINO: _Plugin("onnxruntime_ep_openvino", "onnxruntime-ep-openvino"),
    }
)
_BUILT_IN: Final = MappingProxyType(
    {Provider.CUDA: "onnxruntime-gpu", Provider.TENSORRT: "onnxruntime-gpu and TensorRT"}
)

_lock = threading.Lock()
_registered: dict[Provider, Path] = {}


@dataclass(frozen=True, slots=True)
class ProviderDemand:
    """Where a session is to run.

    Attributes:
        provider: Which provider.
        options: Its options, as ONNX Runtime names them.
        whole: Whether every node has to run there; if not, one node does, and the CPU may have the others.
    """

    provider: Provider
    options: Mapping[str, str]
    whole: bool = True


def plugin_library(demand: ProviderDemand) -> Path:
    """Returns the library of a provider that comes as a plugin.

    Raises:
        ProviderUnavailable: It is not installed, or not at the path that was given.
    """
    plugin = _PLUGINS[demand.provider]
    given = demand.options.get(LIBRARY_OPTION)
    if given is None:
        try:
            path = Path(importlib.import_module(plugin.module).get_library_path())
        except (ImportError, AttributeError, OSError) as error:
            raise _unavailable(
                demand,
                f"its plugin is not installed ({error}); install {plugin.package}, or name its library with "
                f"the option {LIBRARY_OPTION}",
            ) from error
    else:
        path = Path(given)
    if not path.is_file():
        raise _unavailable(demand, f"its plugin {path} is not there; install {plugin.package} again")
    return path


def check_present(demand: ProviderDemand) -> None:
    """Looks whether a provider is there at all, before anything is prepared for it; loads nothing.

    Raises:
        ProviderUnavailable: ONNX Runtime was built without it, or its plugin is not installed; says what to install.
    """
    if demand.provider in _PLUGINS:
        plugin_library(demand)
    elif _NAMES[demand.provider] not in ort.get_available_providers():
        raise _unavailable(
            demand, f"this ONNX Runtime was built without it; install {_BUILT_IN[demand.provider]} instead"
        )


def demand_provider(options: ort.SessionOptions, demand: ProviderDemand) -> list[tuple[str, dict[str, str]]]:
    """Has a session use a provider; a plugin's library is registered the first time, once for the process.

    Args:
        options: Changed so that a session with them uses the provider.
        demand: The provider.

    Returns:
        Providers to be named when the session is made; empty where the options say it.

    Raises:
        ProviderUnavailable: It cannot be had on this machine; says what is missing.
    """
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if demand.whole:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    own = {name: value for name, value in demand.options.items() if name != LIBRARY_OPTION}
    if demand.provider not in _PLUGINS:
        check_present(demand)
        return [(_NAMES[demand.provider], own)]
    devices = _devices(demand, plugin_library(demand))
    try:
        options.add_provider_for_devices(devices, own)
    except Exception as error:
        raise _unavailable(demand, f"its options are refused: {error}") from error
    return []


def compiler_identity(demand: ProviderDemand) -> str:
    """Returns versions of everything that takes part in compiling for a plugin's provider, as far as they can be read.

    Raises:
        ProviderUnavailable: The plugin is not installed.
    """
    library = plugin_library(demand)
    package = sys.modules.get(_PLUGINS[demand.provider].module)
    versions = getattr(package, "build_and_package_info", package)
    known = {
        "onnxruntime": ort.__version__,
        "plugin": getattr(versions, "__version__", None),
        "sdk": getattr(versions, "qnn_version", None),
        "library": _size(library),
        "backend": _size(Path(demand.options["backend_path"])) if "backend_path" in demand.options else None,
    }
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def device_identity(demand: ProviderDemand) -> str:
    """Returns what tells the devices that a plugin's provider would run on from others.

    Raises:
        ProviderUnavailable: It cannot be had on this machine.
    """
    devices = [device.device for device in _devices(demand, plugin_library(demand))]
    return "; ".join(
        f"{platform.machine()} {device.type.name} {device.vendor} {device.device_id} {sorted(device.metadata.items())}"
        for device in devices
    )


def check_assignment(session: ort.InferenceSession, demand: ProviderDemand) -> int:
    """Looks at which provider got the nodes of a session.

    Returns:
        How many nodes it got.

    Raises:
        ProviderUnavailable: It got none; or not all, where it has to have all.
    """
    name = _NAMES[demand.provider]
    nodes: Counter[str] = Counter()
    strayed: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        found = part.get_nodes()
        nodes[part.ep_name] += len(found)
        if part.ep_name != name:
            strayed.update(node.op_type for node in found)
    if nodes[name] == 0:
        raise _unavailable(demand, f"it took no node of the graph; {_counts(nodes)}")
    if demand.whole and strayed:
        raise _unavailable(demand, f"it left {strayed.total()} nodes to others: {_counts(strayed)}")
    return nodes[name]


def not_opened(error: Exception, demand: ProviderDemand, what: str) -> ProviderUnavailable:
    """Returns what to raise where ONNX Runtime could not make a session on a provider."""
    if "fallback to CPU EP has been explicitly disabled" in str(error):
        return _unavailable(
            demand, f"it does not take all of {what}; it may know an operator in it not, or only with fixed shapes"
        )
    return _unavailable(demand, f"{what} cannot be opened there: {error}")


def _devices(demand: ProviderDemand, library: Path) -> list[ort.OrtEpDevice]:
    """Returns the devices of the best kind that a plugin found."""
    name = _NAMES[demand.provider]
    with _lock:
        present = _registered.get(demand.provider)
        if present is None:
            try:
                ort.register_execution_provider_library(name, str(library))
            except Exception as error:
                raise _unavailable(
                    demand, f"its plugin {library} does not go with ONNX Runtime {ort.__version__}: {error}"
                ) from error
            _registered[demand.provider] = library
        elif present != library:
            raise _unavailable(demand, f"this process uses {present} already, {library} cannot be had beside it")
    found = [device for device in ort.get_ep_devices() if device.ep_name == name]
    for kind in _DEVICE_ORDERS.get(demand.provider, _DEVICE_ORDER):
        if devices := [device for device in found if device.device.type == kind]:
            return devices
    raise _unavailable(demand, f"its plugin {library} found no device")


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _unavailable(demand: ProviderDemand, reason: str) -> ProviderUnavailable:
    return ProviderUnavailable(demand.provider.value, reason)


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(of.items()))
