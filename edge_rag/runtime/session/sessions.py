"""ONNX Runtime sessions: opened on one execution provider, with proof that their nodes run there.

Every session shares one thread pool. A provider that is missing, that does not take all of a graph, or that silently
left nodes to the CPU is an error here, never a slower session; whether to stop then or to use another provider is
decided by the caller.
"""

from __future__ import annotations

import importlib
import os
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

import edge_rag.ops
from edge_rag.core.placement import Provider, ProviderDevice
from edge_rag.errors import ConfigurationError, ModelError, ProviderUnavailable
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import ProviderSpec

LIBRARY_OPTION: Final = "plugin_library"
"""Provider option that this package adds: path of the plugin's library, instead of the installed package's."""

OPS_LIBRARY: Final = "libedge_rag_ops.so"

_HARDWARE: Final = MappingProxyType(
    {
        "npu": ort.OrtHardwareDeviceType.NPU,
        "gpu": ort.OrtHardwareDeviceType.GPU,
        "cpu": ort.OrtHardwareDeviceType.CPU,
    }
)

_lock = threading.Lock()
_pool_threads: int | None = None
_registered: dict[Provider, Path] = {}


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """Where a session must run.

    Attributes:
        whole: Whether every node must run there; otherwise at least one does, and the CPU may run the others.
    """

    provider: Provider
    options: Mapping[str, str]
    whole: bool = True

    @property
    def spec(self) -> ProviderSpec:
        return SPECS[self.provider]


ON_CPU: Final = SessionTarget(Provider.CPU, {})
"""Processor cores, where every model can run."""


def configure_thread_pool(threads: int) -> None:
    """Sets the size of the thread pool that all sessions of this process share. Later calls must name the same size.

    Args:
        threads: Computing threads, at least 1; the calling thread is one of them.
    """
    global _pool_threads
    with _lock:
        if _pool_threads is None:
            ort.set_global_thread_pool_sizes(threads, 1)
            _pool_threads = threads
        elif _pool_threads != threads:
            raise ConfigurationError(f"threads: the pool already has {_pool_threads} threads, {threads} cannot be had")


def pool_threads() -> int:
    """Returns the size of the thread pool; creates it with one thread for each processor if it does not exist."""
    if _pool_threads is None:
        configure_thread_pool(os.cpu_count() or 1)
    return _pool_threads or 1


def open_session(
    model: Path | bytes, custom_ops: Path | None = None, target: SessionTarget = ON_CPU
) -> ort.InferenceSession:
    """Opens a model on one execution provider.

    Args:
        target: Where it must run.
    """
    options, providers = _options(target)
    what = "the graph" if isinstance(model, bytes) else str(model)
    try:
        if custom_ops is not None:
            options.register_custom_ops_library(str(custom_ops))
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=providers or None, enable_fallback=0
        )
    except Exception as error:
        if target.provider is Provider.CPU:
            raise ModelError(f"{what}: ONNX Runtime cannot open it: {error}") from error
        raise provider_failure(error, target, what) from error
    if target.provider is not Provider.CPU:
        check_assignment(session, target)
    return session


def compile_graph(model: bytes, target: SessionTarget) -> bytes:
    """Compiles a graph for a provider.

    Returns:
        A model that only this provider can open, without compiling it again.
    """
    options, _ = _options(target)
    try:
        compiled: bytes = ort.ModelCompiler(options, model, embed_compiled_data_into_model=True).compile_to_bytes()
    except Exception as error:
        raise provider_failure(error, target, "the graph") from error
    return compiled


def plugin_library(target: SessionTarget) -> Path | None:
    """Returns the library of a provider that is a plugin; None for providers built into ONNX Runtime."""
    plugin = target.spec.plugin
    if plugin is None:
        return None
    given = target.options.get(LIBRARY_OPTION)
    if given is None:
        try:
            path = Path(importlib.import_module(plugin.module).get_library_path())
        except (ImportError, AttributeError, OSError) as error:
            raise _unavailable(
                target,
                f"its plugin is not installed ({error}); install {target.spec.distribution}, or name its library with "
                f"the option {LIBRARY_OPTION}",
            ) from error
    else:
        path = Path(given)
    if not path.is_file():
        raise _unavailable(target, f"its plugin {path} is not there; install {target.spec.distribution} again")
    return path


def check_installed(target: SessionTarget) -> None:
    spec = target.spec
    if plugin_library(target) is None and spec.ort_name not in ort.get_available_providers():
        requirement = spec.requirement or spec.distribution
        raise _unavailable(target, f"this ONNX Runtime was built without it; install {requirement} instead")


def compiler_identity(target: SessionTarget) -> str:
    """Returns the versions of everything that takes part in compiling for a plugin, as far as they can be read."""
    plugin, library = target.spec.plugin, plugin_library(target)
    assert plugin is not None
    assert library is not None
    package = sys.modules.get(plugin.module)
    versions = getattr(package, "build_and_package_info", package)
    backend = target.options.get(plugin.backend_option or "")
    known = {
        "onnxruntime": ort.__version__,
        "plugin": getattr(versions, "__version__", None),
        "sdk": None if plugin.sdk_version is None else getattr(versions, plugin.sdk_version, None),
        "library": _size(library),
        "backend": None if backend is None else _size(Path(backend)),
    }
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)


def device_identity(target: SessionTarget) -> str:
    library = plugin_library(target)
    assert library is not None
    return "; ".join(
        f"{platform.machine()} {device.type.name} {device.vendor} {device.device_id} {sorted(device.metadata.items())}"
        for device in (each.device for each in _plugin_devices(target, library))
    )


def check_assignment(session: ort.InferenceSession, target: SessionTarget) -> int:
    """Checks which provider runs the nodes of a session."""
    name = target.spec.ort_name
    nodes: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        found = part.get_nodes()
        nodes[part.ep_name] += len(found)
        if part.ep_name != name:
            elsewhere.update(node.op_type for node in found)
    if nodes[name] == 0:
        raise _unavailable(target, f"it took no node of the graph; {_counts(nodes)}")
    if target.whole and elsewhere:
        raise _unavailable(target, f"it left {elsewhere.total()} nodes to others: {_counts(elsewhere)}")
    return nodes[name]


def provider_failure(error: Exception, target: SessionTarget, what: str) -> ProviderUnavailable:
    if "fallback to CPU EP has been explicitly disabled" in str(error):
        return _unavailable(
            target, f"it does not take all of {what}; it may lack an operator, or support it only with fixed shapes"
        )
    return _unavailable(target, f"{what} cannot be opened there: {error}")


def provider_devices() -> tuple[ProviderDevice, ...]:
    """Returns the devices of the providers that are built into ONNX Runtime or registered; loads no plugin."""
    specs = {spec.ort_name: spec for spec in SPECS.values()}
    found = [
        ProviderDevice(specs[device.ep_name].provider, device.device.type.name.lower(), device.device.vendor)
        for device in ort.get_ep_devices()
        if device.ep_name in specs
    ]
    listed = {device.provider for device in found}
    built_in = [specs[name] for name in ort.get_available_providers() if name in specs]
    return (
        *found,
        *(ProviderDevice(spec.provider, spec.device_kinds[0]) for spec in built_in if spec.provider not in listed),
    )


def ops_library() -> Path:
    """Returns the custom-op library, which is built when the package is installed.

    An editable install keeps the sources in the checkout and the library among the installed packages; both are on
    the path of ``edge_rag.ops``.
    """
    for folder in edge_rag.ops.__path__:
        library = Path(folder) / OPS_LIBRARY
        if library.is_file():
            return library
    searched = ", ".join(edge_rag.ops.__path__)
    raise ModelError(f"{OPS_LIBRARY} is not in {searched}; build it with `pip install .` or `pip install -e .`")


class EncoderArena:
    """Whether an encoder's session keeps the memory of its intermediate results between runs. Any thread.

    ONNX Runtime's arena grows to the need of the largest run and stays that large, which spares later runs the system
    calls. Under memory pressure each run can be made to return what it had to add.
    """

    def __init__(self) -> None:
        self._options: ort.RunOptions | None = None

    @property
    def options(self) -> ort.RunOptions | None:
        """Options for the next run; None for ONNX Runtime's defaults."""
        return self._options

    def keep(self, keep: bool) -> None:
        if keep:
            self._options = None
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._options = options


def _options(target: SessionTarget) -> tuple[ort.SessionOptions, list[tuple[str, dict[str, str]]]]:
    """Returns session options, and the providers to name beside them; none where the options name the devices."""
    pool_threads()
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    # Runs have many shapes, and a pattern would be kept for each; the arena is half as large without them.
    options.enable_mem_pattern = False
    if target.provider is Provider.CPU:
        return options, [(target.spec.ort_name, {})]
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if target.whole:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    own = {name: value for name, value in target.options.items() if name != LIBRARY_OPTION}
    library = plugin_library(target)
    if library is None:
        check_installed(target)
        return options, [(target.spec.ort_name, own)]
    devices = _plugin_devices(target, library)
    try:
        options.add_provider_for_devices(devices, own)
    except Exception as error:
        raise _unavailable(target, f"its options are refused: {error}") from error
    return options, []


def _plugin_devices(target: SessionTarget, library: Path) -> list[ort.OrtEpDevice]:
    """Returns the devices of the best kind that a plugin found; registers its library once for the process."""
    name = target.spec.ort_name
    with _lock:
        present = _registered.get(target.provider)
        if present is None:
            try:
                ort.register_execution_provider_library(name, str(library))
            except Exception as error:
                raise _unavailable(
                    target, f"its plugin {library} does not go with ONNX Runtime {ort.__version__}: {error}"
                ) from error
            _registered[target.provider] = library
        elif present != library:
            raise _unavailable(target, f"this process uses {present} already, {library} cannot be had beside it")
    found = [device for device in ort.get_ep_devices() if device.ep_name == name]
    for kind in target.spec.device_kinds:
        if devices := [device for device in found if device.device.type == _HARDWARE[kind]]:
            return devices
    raise _unavailable(target, f"its plugin {library} found no device")


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _unavailable(target: SessionTarget, reason: str) -> ProviderUnavailable:
    return ProviderUnavailable(target.provider.value, reason)


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(of.items()))
