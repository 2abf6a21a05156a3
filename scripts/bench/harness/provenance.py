"""Where a figure comes from: every result names its machine, command, date and commit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from platform import machine

_ROOT = Path(__file__).parents[3]


def provenance(module: str) -> dict[str, str]:
    """Returns what a result's caption says of its origin; of the commit, also whether files were changed since."""
    try:
        described = ("git", "describe", "--always", "--dirty", "--exclude=*")
        commit = subprocess.run(described, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^(?:model name|Model)\s*: (.+)$", cpus, re.MULTILINE)
    command = shlex.join(("python", "-m", module, *sys.argv[1:]))
    return {
        "machine": f"{model[1] if model else machine()}, {len(os.sched_getaffinity(0))} cores",
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
    }


def caption(origin: dict[str, str]) -> str:
    return f"`{origin['command']}`, {origin['machine']}, {origin['date']}, commit {origin['commit']}"
