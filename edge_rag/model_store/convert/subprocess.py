"""Programs that do the heavy work: watched, quoted in errors, and never left running.

How long work says how far it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import edge_rag
from edge_rag.errors import ModelNotAdded


class AddProgress(Protocol):
    """Shows what is being done. Called from one thread at a time."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """A step begins, and the one before it is over.

        Args:
            what: What is done, for people.
            total_bytes: How much there is to do; None where nobody knows.
        """

    def advance(self, done_bytes: int) -> None:
        """So many more bytes of the step are done."""

    def detail(self, line: str) -> None:
        """A line from a program that does the step; not trusted."""


class Silent:
    """Shows nothing."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Does nothing."""

    def advance(self, done_bytes: int) -> None:
        """Does nothing."""

    def detail(self, line: str) -> None:
        """Does nothing."""


_INHERITED = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "EDGE_RAG_OPS_BUILD")
_TAIL_LINES = 12
_LONGEST_LINE = 2000


def run_python(
    module: str, arguments: list[str], scratch: Path, progress: AddProgress, *, timeout_s: float, threads: int
) -> list[str]:
    """Runs a module in an interpreter of its own, without network and without the caller's secrets.

    Args:
        module: Name of the module.
        arguments: Its arguments.
        scratch: Where it may keep caches; it is also its working directory.
        progress: Is shown every line it prints.
        timeout_s: It is ended after this long.
        threads: Threads that its numerical libraries may use.

    Returns:
        The last lines it printed on standard output and error.

    Raises:
        ModelNotAdded: It could not be started, took too long or failed; quotes its last lines.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(scratch, threads),
            cwd=scratch,
            start_new_session=True,
        )
    except OSError as error:
        raise ModelNotAdded(f"{module} could not be started: {error}") from error
    late = threading.Event()

    def end_late() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(timeout_s, end_late)
    timer.start()
    try:
        if process.stdout is not None:
            while line := process.stdout.readline(_LONGEST_LINE):
                text = line.decode("utf-8", "replace").strip()
                if text:
                    tail.append(text)
                    progress.detail(text)
        status = process.wait()
    finally:
        timer.cancel()
        _end(process)
        if process.stdout is not None:
            process.stdout.close()
    if late.is_set():
        raise ModelNotAdded(f"{module} was ended after {timeout_s:.0f} s; nothing was added")
    if status != 0:
        said = "\n  ".join(tail) or "it said nothing"
        how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
        raise ModelNotAdded(f"{module} {how}; nothing was added. Its last words:\n  {said}")
    return list(tail)


def _environment(scratch: Path, threads: int) -> Mapping[str, str]:
    environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    return environment | {
        "PYTHONPATH": str(Path(edge_rag.__file__).parents[1]),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": str(scratch),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
