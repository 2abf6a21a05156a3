"""How short memory is: what is left below every limit, and how long work waited for it (PSI).

See Documentation/accounting/psi.rst and Documentation/admin-guide/cgroup-v2.rst of Linux.
"""

from __future__ import annotations

import os
import re
import select
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.device.probing.cgroups import memory_limits
from edge_rag.device.probing.files import text_of
from edge_rag.device.probing.read_memory import read_memory

_TRIGGER: Final = b"some 200000 2000000"
"""Microseconds of waiting within a window of two seconds; shorter windows need rights that a service has not."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory at one moment.

    Attributes:
        headroom_bytes: What can still be taken before a limit is reached or the box has none left.
        board_bytes: The lowest limit, or all memory of the box.
        some_percent: Share of the last 10 seconds in which something waited for memory, per cent; None where the
            kernel does not say.
        full_percent: Share in which everything did; None likewise.
    """

    headroom_bytes: int
    board_bytes: int
    some_percent: float | None
    full_percent: float | None


def read_pressure(root: Path) -> MemoryReading:
    """Reads memory and its limits now; the highest pressure of the box and of the cgroups that limit this process.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    facts = read_memory(root)
    shown = [text_of(file) or "" for file in _pressure_files(root)]
    return MemoryReading(
        headroom_bytes=facts.usable_bytes,
        board_bytes=facts.board_bytes,
        some_percent=max((_average(text, "some") for text in shown if text), default=None),
        full_percent=max((_average(text, "full") for text in shown if text), default=None),
    )


def _pressure_files(root: Path) -> list[Path]:
    cgroups = {
        root / "sys/fs/cgroup" / limit.file.rpartition("/")[0] / "memory.pressure" for limit in memory_limits(root)
    }
    return [root / "proc/pressure/memory", *sorted(cgroups)]


def _average(text: str, kind: str) -> float:
    found = re.search(rf"^{kind} avg10=([0-9.]+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class PressureTrigger:
    """Waits for the kernel to say that memory became short, where it can be asked to.

    Args:
        root: Where ``proc`` is.
    """

    def __init__(self, root: Path) -> None:
        self._file: int | None = None
        self._read, self._write = os.pipe()
        try:
            self._file = os.open(root / "proc/pressure/memory", os.O_RDWR | os.O_NONBLOCK)
            os.write(self._file, _TRIGGER + b"\0")
        except OSError:
            self._forget()

    @property
    def armed(self) -> bool:
        """Whether the kernel says so."""
        return self._file is not None

    def wait(self, seconds: float) -> None:
        """Returns when memory became short, after so many seconds, or once woken."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if self._file is not None:
            poll.register(self._file, select.POLLPRI)
        for number, event in poll.poll(seconds * 1000):
            if number == self._file and event & (select.POLLERR | select.POLLNVAL):
                self._forget()

    def wake(self) -> None:
        """Has whoever waits, now and later, return at once."""
        os.write(self._write, b"\0")

    def close(self) -> None:
        """Lets go of it; nobody may wait."""
        self._forget()
        os.close(self._read)
        os.close(self._write)

    def _forget(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
