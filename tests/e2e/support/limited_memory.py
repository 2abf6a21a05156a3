"""A cgroup of a test's own whose memory can be limited, where the test may make one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_rag.device.hardware import integer_of, text_of


@dataclass(frozen=True)
class LimitedMemory:
    folder: Path
    before: Path
    unified: bool

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is started in the block starts in the cgroup, so that all of its memory counts there."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self.before / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size_bytes: int | None) -> None:
        name, none = ("memory.max", "max") if self.unified else ("memory.limit_in_bytes", "-1")
        (self.folder / name).write_text(none if size_bytes is None else str(size_bytes))

    @property
    def used_bytes(self) -> int:
        """What counts, less the page cache that can be given back at once."""
        used = integer_of(self.folder / ("memory.current" if self.unified else "memory.usage_in_bytes"))
        stat = dict(line.split() for line in (text_of(self.folder / "memory.stat") or "").splitlines())
        return (used or 0) - int(stat.get("inactive_file", 0))

    @property
    def kills(self) -> int:
        """Processes that the kernel killed for want of memory."""
        shown = text_of(self.folder / ("memory.events" if self.unified else "memory.oom_control")) or ""
        return int(dict(line.split() for line in shown.splitlines()).get("oom_kill", 0))


@contextmanager
def limited_memory() -> Iterator[LimitedMemory]:
    """Makes a cgroup; skips the test where that cannot be done."""
    made = _make()
    if made is None:
        pytest.skip("no cgroup with a limit on memory can be made here")
    try:
        yield made
    finally:
        made.folder.rmdir()


def _make() -> LimitedMemory | None:
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    places = [(Path("/sys/fs/cgroup/memory"), own.get("memory"), False), (Path("/sys/fs/cgroup"), own.get(""), True)]
    for mount, path, unified in places:
        before = mount / (path or "").lstrip("/")
        folder = mount / f"edge-rag-test-{os.getpid()}"
        if path is None or not (before / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        made = LimitedMemory(folder, before, unified)
        try:
            with made.inside():
                made.limit(None)
            return made
        except OSError:
            folder.rmdir()
    return None
