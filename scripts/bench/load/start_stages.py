"""Runs the command line like ``python -m edge_rag`` and writes down when the parts of a start began and ended.

    python scripts/bench/load/start_stages.py FILE serve --data-dir DIR

FILE gets one JSON object: for each part its name, its thread, and the seconds from the start of the process to its
begin and to its end. A part may be in another one. Parts that this version of the package does not have are left out.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PARTS = {
    "edge_rag.config.settings": ("load_settings",),
    "edge_rag.daemon": ("run",),
    "edge_rag.bootstrap.app": ("build",),
    "edge_rag.bootstrap.encoders": ("Encoders.open",),
    "edge_rag.bootstrap.generators": ("GeneratorFactory.make", "GeneratorFactory.make_without_model"),
    "edge_rag.model_store.store": ("fill_roles",),
    "edge_rag.device.probe": ("probe",),
    "edge_rag.runtime.model_folder.folder": ("verify_model_folder",),
    "edge_rag.runtime.session.sessions": ("open_session",),
    "edge_rag.runtime.encoder.tokenizer": ("TextTokenizer.open",),
    "edge_rag.bootstrap.open_directory": ("open_data_directory",),
    "edge_rag.storage.data_directory": ("make_private",),
    "edge_rag.storage.database": ("Database.__init__", "require_whole_database", "require_whole_log"),
    "edge_rag.storage.spool.originals": ("Originals.recover",),
    "edge_rag.storage.jobs": ("JobStore.recover",),
    "edge_rag.storage.uploads.files": ("FileStore.recover",),
    "edge_rag.index.manager": ("VectorIndexes.load",),
    "edge_rag.index.token_vectors": ("TokenVectorFile.__init__",),
    "edge_rag.ingest.vector_renewal": ("VectorRenewal.run",),
    "edge_rag.server.grpc.server": ("GrpcServer.start", "GrpcServer.serving"),
}

_lines: list[dict[str, Any]] = []


def _since_start() -> float:
    """Seconds since this process was started."""
    began = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / 100


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        began = _since_start()
        try:
            return function(*args, **named)
        finally:
            _lines.append(
                {"part": name, "thread": threading.current_thread().name, "began": began, "ended": _since_start()}
            )

    return call


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the parts of a module when it was imported, before others import them from it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in PARTS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def wrapped(module: ModuleType) -> None:
            execute(module)
            _wrap(fullname, module)

        spec.loader.exec_module = wrapped  # type: ignore[method-assign]
        return spec


def _wrap(module_name: str, module: ModuleType) -> None:
    for part in PARTS[module_name]:
        owner, _, last = part.rpartition(".")
        holder = getattr(module, owner) if owner else module
        found = vars(holder).get(last)
        if isinstance(found, classmethod):
            setattr(holder, last, classmethod(_timed(part, found.__func__)))
        elif found is not None:
            setattr(holder, last, _timed(part, found))


def main() -> None:
    """Runs the command."""
    file = Path(sys.argv.pop(1))
    _lines.append({"part": "interpreter", "thread": "MainThread", "began": 0.0, "ended": _since_start()})
    sys.meta_path.insert(0, _Finder())
    try:
        from edge_rag.cli.main import main as command

        command(prog_name="edge-rag")
    finally:
        file.write_text(json.dumps(_lines))


if __name__ == "__main__":
    main()
