"""Opening ONNX Runtime sessions: telemetry off, one thread pool for all of them, errors translated."""

from __future__ import annotations

import os
import threading
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from edge_rag.errors import ConfigurationError, ModelError

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


def open_session(model: Path, custom_ops: Path | None = None) -> ort.InferenceSession:
    """Opens a model on the CPU execution provider.

    Args:
        model: An ONNX file from a verified model folder.
        custom_ops: Custom-op library the graph needs.

    Returns:
        A session on the shared thread pool. Runs may be made from any thread.

    Raises:
        ModelError: The file is not a model this runtime can run; names the file.
    """
    pool_threads()
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    # Every run has shapes of its own, and a pattern would be kept for each; the arena is half as large without.
    options.enable_mem_pattern = False
    try:
        if custom_ops is not None:
            options.register_custom_ops_library(str(custom_ops))
        return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(f"{model}: ONNX Runtime cannot open it: {error}") from error
