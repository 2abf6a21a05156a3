"""The staging directory in which a model is built, and the subprocesses that convert and open its files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_rag.core.limits.limited_process import end_child, kill_child
from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.directory import plain_files
from edge_rag.model_store.program import start_program
from edge_rag.model_store.source import AddProgress
from edge_rag.runtime.model_folder.graph_check import check_contents

_INHERITED = ("HOME", "TMPDIR", "EDGE_RAG_OPS_BUILD")
_TAIL_LINES = 12
_MAX_LINE_BYTES = 2000


def run_python(
    module: str, arguments: list[str], scratch: Path, progress: AddProgress, *, timeout_s: float, threads: int
) -> list[str]:
    """Runs a module in a new interpreter, without network and without the caller's secrets. It ends with the caller.

    It gets the memory that is free now; files that it maps do not count. Where memory is short nevertheless, the kernel
    kills it before a daemon.

    Args:
        timeout_s: Time after which it is killed, seconds.

    Returns:
        The last lines it printed on standard output and error.

    Raises:
        ModelNotAdded: It could not be started, timed out or failed; the message has its last lines.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        process, free = start_program(
            module, arguments, _environment(scratch, threads), cwd=scratch, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise ModelNotAdded(f"{module} could not be started: {error}") from error
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        kill_child(process)

    timer = threading.Timer(timeout_s, kill)
    timer.start()
    try:
        if process.stdout is not None:
            while line := process.stdout.readline(_MAX_LINE_BYTES):
                text = line.decode("utf-8", "replace").strip()
                if text:
                    tail.append(text)
                    progress.detail(text)
        status = process.wait()
    finally:
        timer.cancel()
        end_child(process)
    if timed_out.is_set():
        raise ModelNotAdded(f"{module} was ended after {timeout_s:.0f} s; nothing was added")
    if status != 0:
        output = "\n  ".join(tail) or "(no output)"
        how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
        if status == -signal.SIGKILL or "MemoryError" in output or "bad_alloc" in output:
            how += f" with {free >> 20} MiB of memory to have: end other programs, or add it on a larger machine"
        raise ModelNotAdded(f"{module} {how}; nothing was added. Its last output:\n  {output}")
    return list(tail)


def _environment(scratch: Path, threads: int) -> Mapping[str, str]:
    environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    return environment | {
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": str(scratch),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
    }


_PREPARATION = "edge_rag.model_store.convert.prepare_generator"
_STEP_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class StagingDir:
    """A folder on the store's file system in which a model is built."""

    folder: Path
    progress: AddProgress

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def converted(self) -> Path:
        return self.folder / "converted"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def step(
        self, name: str, *arguments: Path | str, program: str = _PREPARATION, timeout_s: float = _STEP_TIMEOUT_S
    ) -> dict[str, Any]:
        """Runs a step in a subprocess.

        Args:
            timeout_s: Time after which it is killed, seconds.

        Returns:
            Its result, the JSON object in its last line.
        """
        lines = run_python(
            program,
            [name, *map(str, arguments)],
            self.scratch,
            self.progress,
            timeout_s=timeout_s,
            threads=len(os.sched_getaffinity(0)),
        )
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def check_folder(folder: Path) -> None:
    """Checks a folder without a manifest against what its files may contain."""
    try:
        check_contents(plain_files(folder), lambda path: (folder / path).read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
