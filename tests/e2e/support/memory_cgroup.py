"""Cgroups with a limit on memory, of the version this machine has. Needs root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_MOUNTS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryCgroup:
    """A cgroup of a test's own."""

    folder: Path
    unified: bool

    @property
    def prefix(self) -> list[str]:
        """What a command begins with so that it runs in the cgroup."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def limit(self, limit_bytes: int | None) -> None:
        name, none = ("memory.max", "max") if self.unified else ("memory.limit_in_bytes", "-1")
        (self.folder / name).write_text(none if limit_bytes is None else str(limit_bytes))

    def most_bytes(self) -> int:
        return int(self._read("memory.peak" if self.unified else "memory.max_usage_in_bytes"))

    def used_bytes(self) -> int:
        """What counts, less the page cache that can be given back at once."""
        used = int(self._read("memory.current" if self.unified else "memory.usage_in_bytes"))
        return used - self._counts("memory.stat")["inactive_file"]

    def kills(self) -> int:
        """Processes that the kernel killed for want of memory."""
        return self._counts("memory.events" if self.unified else "memory.oom_control")["oom_kill"]

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _counts(self, name: str) -> dict[str, int]:
        return {key: int(value) for key, value in (line.split() for line in self._read(name).splitlines())}


@contextmanager
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """Makes a cgroup and removes it again; skips the test where none can be made."""
    unified = (_MOUNTS / "cgroup.subtree_control").exists()
    folder = (_MOUNTS if unified else _MOUNTS / "memory") / f"edge-rag-test-{os.getpid()}"
    try:
        if unified and "memory" not in (_MOUNTS / "cgroup.subtree_control").read_text().split():
            (_MOUNTS / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made here: that takes root and a writable cgroup file system")
    try:
        if not (folder / ("memory.max" if unified else "memory.limit_in_bytes")).exists():
            pytest.skip("no cgroup with a limit on memory can be made here")
        yield MemoryCgroup(folder, unified)
    finally:
        folder.rmdir()
