"""A program at a terminal of its own: keys are sent to it, and what it shows is read."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"

_PATIENCE_S = 60.0
_AGAIN_S = 2.0
_PROGRAM = (
    "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from edge_rag.cli.main import main; main()"  # Ctrl-C
)


class Terminal:
    """The user's side of a terminal."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self._process = process
        self._shown = b""

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def interrupt(self, text: str) -> str:
        """Presses Ctrl-C until a text is shown; returns what ``wait_for`` does.

        Python's readline does not see a signal that arrives just before it waits for the next key.
        """
        return self.wait_for(text, CTRL_C)

    def wait_for(self, text: str, pressing: str = "") -> str:
        """Returns what is shown up to a text, which is shown next, and forgets it."""
        wanted, deadline = text.encode(), time.monotonic() + _PATIENCE_S
        self.press(pressing)
        while wanted not in self._shown:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._descriptor], [], [], min(left, _AGAIN_S) if pressing else left)
            if not ready and pressing and time.monotonic() < deadline:
                self.press(pressing)
                continue
            assert ready, f"not shown: {text!r}, but {self._shown!r}"
            self._shown += os.read(self._descriptor, 1 << 16)
        before, _, self._shown = self._shown.partition(wanted)
        return before.decode() + text

    def ended(self) -> int:
        return self._process.wait(_PATIENCE_S)


@contextmanager
def edge_rag_at_a_terminal(*arguments: str, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Runs the command line at a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **environment},
        )
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(ours)
