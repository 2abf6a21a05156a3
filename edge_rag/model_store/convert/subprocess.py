"""Subprocesses of a conversion."""

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
    """Receives the progress of adding a model. Called from one thread at a time."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Starts a step, which ends the one before.

        Args:
            what: What is done, for people.
            total_bytes: Bytes to process; None if the number is not known.
        """

    def advance(self, done_bytes: int) -> None:
        """Reports further processed bytes of the step."""

    def detail(self, line: str) -> None:
        """Reports a line printed by a program of the step; not trusted."""


class NoProgress:
    """Discards progress."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Does nothing."""

    def advance(self, done_bytes: int) -> None:
        """Does nothing."""

    def detail(self, line: str) -> None:
        """Does nothing."""


_INHERITED = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "EDGE_RAG_OPS_BUILD")
_TAIL_LINES = 12
_MAX_LINE_BYTES = 2000


def run_python(
    module: str, arguments: list[str], scratch: Path, progress: AddProgress, *, timeout_s: float, threads: int
) -> list[str]:
    """Runs a module in a new interpreter, without network and without the caller's secrets.

    Args:
        module: Name of the module.
        arguments: Its arguments.
        scratch: Folder for its caches, and its working directory.
        progress: Receives every line that it prints.
        timeout_s: Time after which it is killed, seconds.
        threads: Threads of its numerical libraries.

    Returns:
        The last lines it printed on standard output and error.

    Raises:
        ModelNotAdded: It could not be started, timed out or failed; the message has its last lines.
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
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        _kill(process)

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
        _kill(process)
        if process.stdout is not None:
            process.stdout.close()
    if timed_out.is_set():
        raise ModelNotAdded(f"{module} was ended after {timeout_s:.0f} s; nothing was added")
    if status != 0:
        output = "\n  ".join(tail) or "(no output)"
        how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
        raise ModelNotAdded(f"{module} {how}; nothing was added. Its last output:\n  {output}")
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and its children if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
