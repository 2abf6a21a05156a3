"""Other processes: started in a session of their own, so that nothing of them outlives a timeout or an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TAIL_CHARACTERS = 1500


class ProgramFailed(Exception):
    """A program crashed or took too long; says which and ends with the end of its output."""


def run_program(
    command: Sequence[str], folder: Path, timeout_s: float | None = None, variables: Mapping[str, str] | None = None
) -> None:
    """Runs a command to its end."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramFailed(f"cannot be started: {error}") from error
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"took longer than {timeout_s:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status != 0:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-_TAIL_CHARACTERS:]
            reason = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            raise ProgramFailed(f"{reason}: {said}" if said else reason)


def wait_until(condition: Callable[[], bool], limit_s: float, what: str, interval_s: float = 0.2) -> None:
    deadline, never = time.monotonic() + limit_s, threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} took more than {limit_s:g} s")
        never.wait(interval_s)
