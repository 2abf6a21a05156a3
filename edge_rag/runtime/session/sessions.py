"""Opening ONNX Runtime sessions: one thread pool for all of them, errors translated."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import onnxruntime as ort

from edge_rag.core.placement import Provider
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
