"""Cgroups with a limit on memory, of the version this machine has. Needs root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryCgroup:
    """A cgroup."""

    folder: Path
    unified: bool

    @property
    def prefix(self) -> list[str]:
        """What goes before a command so that it runs in it."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def limit(self, limit_bytes: int) -> None:
        name = "memory.max" if self.unified else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(limit_bytes))

    def most_bytes(self) -> int:
        name = "memory.peak" if self.unified else "memory.max_usage_in_bytes"
        return int((self.folder / name).read_text())

    def kills(self) -> int:
        name = "memory.events" if self.unified else "memory.oom_control"
        found = re.search(r"^oom_kill (\d+)$", (self.folder / name).read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


@contextmanager
def memory_cgroup(name: str) -> Iterator[MemoryCgroup | None]:
    """Makes a cgroup and removes it again; None where none can be made."""
    unified = (_MOUNTS / "cgroup.subtree_control").exists()
    folder = (_MOUNTS if unified else _MOUNTS / "memory") / name
    try:
        if unified and "memory" not in (_MOUNTS / "cgroup.subtree_control").read_text().split():
            (_MOUNTS / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
        limits = folder / ("memory.max" if unified else "memory.limit_in_bytes")
        made = limits.exists()
    except OSError:
        yield None
        return
    try:
        yield MemoryCgroup(folder, unified) if made else None
    finally:
        folder.rmdir()
