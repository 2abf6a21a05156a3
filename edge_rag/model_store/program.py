"""Starts modules of this package as programs that work on models beside a daemon."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge_rag.core.limits.limited_process import python_command, start_child
from edge_rag.device.hardware import read_memory

_KILLED_FIRST: Final = "1000"
"""Value of ``oom_score_adj`` of the process that the kernel kills first."""


def start_program(
    module: str,
    arguments: list[str],
    environment: Mapping[str, str],
    *,
    cwd: Path = Path("/"),
    stderr: int = subprocess.DEVNULL,
    nice: int = 0,
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a module with the memory that is free now; it ends with the caller, or when its input ends.

    Files that it maps do not count. Where memory is short nevertheless, the kernel kills it before a daemon.

    Returns:
        The process, and its memory, bytes.
    """
    process = start_child([*python_command(), "run", module, *arguments], environment, cwd=cwd, stderr=stderr)
    free = read_memory(Path("/")).usable_bytes
    with suppress(OSError):  # it has ended
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (free, free))
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(_KILLED_FIRST)
        if nice:
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
    return process, free
