"""Opening ONNX Runtime sessions: one thread pool for all of them, errors translated.

Arrays a session reads and writes in place, bound once for as long as their shape stays the same.

Whether an encoder's session keeps the memory of its intermediate results between runs.

Where the compiled library of custom ops lies.

What ONNX Runtime can run on in this process.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

import edge_rag.ops
from edge_rag.core.placement import Provider, ProviderDevice
from edge_rag.errors import ConfigurationError, ModelError
from edge_rag.runtime.session.providers import ProviderDemand, check_assignment, demand_provider, not_opened

ON_CPU: Final = ProviderDemand(Provider.CPU, {})
"""Processor cores, where everything runs."""

_lock = threading.Lock()
_pool_threads: int | None = None


def configure_thread_pool(threads: int) -> None:
    """Sizes the one thread pool that every session of this process shares. Later calls must agree with the first.

    Args:
        threads: Threads that compute, at least 1; the calling thread is one of them.

    Raises:
        ConfigurationError: The pool exists already with another size.
    """
    global _pool_threads
    with _lock:
        if _pool_threads is None:
            ort.set_global_thread_pool_sizes(threads, 1)
            _pool_threads = threads
        elif _pool_threads != threads:
            raise ConfigurationError(f"threads: the pool already has {_pool_threads} threads, {threads} cannot be had")


def pool_threads() -> int:
    """Returns how many threads compute; makes the pool with one a processor where nobody said otherwise."""
    if _pool_threads is None:
        configure_thread_pool(os.cpu_count() or 1)
    return _pool_threads or 1


def open_session(
    model: Path | bytes, custom_ops: Path | None = None, demand: ProviderDemand = ON_CPU
) -> ort.InferenceSession:
    """Opens a model on an execution provider, and on no other.

    Args:
        model: An ONNX file from a verified model folder, or a graph that was made here.
        custom_ops: Custom-op library the graph needs.
        demand: Where it has to run.

    Returns:
        A session on the shared thread pool. Runs may be made from any thread.

    Raises:
        ModelError: The file is not a model this runtime can run; names the file.
        ProviderUnavailable: The provider cannot be had, or does not take the graph; says why.
    """
    options, providers = _options(demand)
    what = "the graph" if isinstance(model, bytes) else str(model)
    try:
        if custom_ops is not None:
            options.register_custom_ops_library(str(custom_ops))
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=providers or None, enable_fallback=0
        )
    except Exception as error:
        if demand.provider is Provider.CPU:
            raise ModelError(f"{what}: ONNX Runtime cannot open it: {error}") from error
        raise not_opened(error, demand, what) from error
    if demand.provider is not Provider.CPU:
        check_assignment(session, demand)
    return session


def compile_graph(model: bytes, demand: ProviderDemand) -> bytes:
    """Has a provider compile a graph; what comes out is a model that only this provider can open, without compiling.

    Raises:
        ProviderUnavailable: The provider cannot be had, or does not take the graph; says why.
    """
    options, _ = _options(demand)
    try:
        compiled: bytes = ort.ModelCompiler(options, model, embed_compiled_data_into_model=True).compile_to_bytes()
    except Exception as error:
        raise not_opened(error, demand, "the graph") from error
    return compiled


def _options(demand: ProviderDemand) -> tuple[ort.SessionOptions, list[tuple[str, dict[str, str]]]]:
    pool_threads()
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    # Every run has shapes of its own, and a pattern would be kept for each; the arena is half as large without.
    options.enable_mem_pattern = False
    if demand.provider is Provider.CPU:
        return options, [("CPUExecutionProvider", {})]
    return options, demand_provider(options, demand)


class BoundInput:
    """An input of a session. Steady decoding has the same shapes step after step, and binding costs more than copying.

    Args:
        binding: The session's.
        name: The input's name.
    """

    def __init__(self, binding: ort.IOBinding, name: str) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.generic] | None = None

    def put(self, array: NDArray[np.generic]) -> None:
        """Makes the next run read these values; the array itself need not outlive the call."""
        held = self._held
        if held is not None and held.shape == array.shape:
            np.copyto(held, array)
            return
        self._held = held = array.copy()
        self._binding.bind_input(self._name, "cpu", 0, held.dtype.type, held.shape, held.ctypes.data)


class BoundRows:
    """A float32 output with rows of one width. One block of memory serves every step: fresh pages cost more than rows.

    Args:
        binding: The session's.
        name: The output's name.
        width: Elements of a row.
    """

    def __init__(self, binding: ort.IOBinding, name: str, width: int) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.float32] = np.empty((0, width), np.float32)
        self._rows: NDArray[np.float32] | None = None

    def take(self, rows: int) -> NDArray[np.float32]:
        """Makes the next run write here.

        Returns:
            float32 [rows, width], the same memory as the last time.
        """
        if self._rows is None or len(self._rows) != rows:
            if len(self._held) < rows:
                self._held = np.empty((rows, self._held.shape[1]), np.float32)
            self._rows = self._held[:rows]
            self._binding.bind_output(self._name, "cpu", 0, np.float32, self._rows.shape, self._rows.ctypes.data)
        return self._rows


class EncoderArena:
    """A switch. Any thread; the session's runs ask it each time.

    ONNX Runtime's arena grows to what the largest run needed and keeps that, so that runs need not ask the system for
    memory. Where memory is short it can be told to give back after a run what the run did not find there.
    """

    def __init__(self) -> None:
        self._options: ort.RunOptions | None = None

    @property
    def options(self) -> ort.RunOptions | None:
        """What a run is to be given; None for the usual."""
        return self._options

    def keep(self, keep: bool) -> None:
        """Says whether memory is kept, from the next run on."""
        if keep:
            self._options = None
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._options = options


LIBRARY_NAME = "libedge_rag_ops.so"


def ops_library() -> Path:
    """Returns the library that was built when the package was installed.

    An editable install keeps the sources in the checkout and the library among the installed packages; both are on
    the path of ``edge_rag.ops``.

    Raises:
        ModelError: It was not built.
    """
    for folder in edge_rag.ops.__path__:
        library = Path(folder) / LIBRARY_NAME
        if library.is_file():
            return library
    searched = ", ".join(edge_rag.ops.__path__)
    raise ModelError(f"{LIBRARY_NAME} is not in {searched}; build it with `pip install .` or `pip install -e .`")


# isort: split

_PROVIDERS: Final = MappingProxyType(
    {
        "CPUExecutionProvider": (Provider.CPU, "cpu"),
        "CUDAExecutionProvider": (Provider.CUDA, "gpu"),
        "TensorrtExecutionProvider": (Provider.TENSORRT, "gpu"),
        "QNNExecutionProvider": (Provider.QNN, "npu"),
        "OpenVINOExecutionProvider": (Provider.OPENVINO, "gpu"),
    }
)


def provider_devices() -> tuple[ProviderDevice, ...]:
    """Returns the devices of the providers that ONNX Runtime has, built in or registered; loads no plugin."""
    found = [
        ProviderDevice(_PROVIDERS[device.ep_name][0], device.device.type.name.lower(), device.device.vendor)
        for device in ort.get_ep_devices()
        if device.ep_name in _PROVIDERS
    ]
    told = {device.provider for device in found}
    built_in = [_PROVIDERS[name] for name in ort.get_available_providers() if name in _PROVIDERS]
    return (*found, *(ProviderDevice(provider, kind) for provider, kind in built_in if provider not in told))
