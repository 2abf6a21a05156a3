"""Unix sockets that one daemon holds.

gRPC removes any socket at a path before it binds there, even that of a living daemon. A lock beside the
socket says whether its daemon lives; the lock is the kernel's (``flock``), so that a killed daemon leaves none.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edge_rag.errors import ConfigurationError

_CONNECT_S: Final = 1.0
"""How long to wait for a daemon that holds no lock, seconds: one of another program, or of an earlier version."""

_PRIVATE: Final = 0o177
"""umask of a socket that only its owner may use."""


class UnixSocket:
    """Holds the path of a Unix socket until it is released or the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = path.with_name(f".{path.name}.lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._lock_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigurationError(f"listen: unix:{path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_stale()
        except BlockingIOError as error:
            os.close(self._lock)
            raise ConfigurationError(f"listen: another daemon listens on unix:{path}; stop it first") from error
        except OSError as error:
            os.close(self._lock)
            raise ConfigurationError(f"listen: unix:{path} cannot be used: {error.strerror}") from error
        except ConfigurationError:
            os.close(self._lock)
            raise

    def bind(self, add_port: Callable[[str], int], private: bool) -> None:
        """Has a server listen on the path.

        Args:
            private: Whether only the owner of the socket may connect; otherwise the process's umask decides.
        """
        before = os.umask(_PRIVATE) if private else None
        try:
            add_port(f"unix:{self.path}")
        finally:
            if before is not None:
                os.umask(before)

    def release(self) -> None:
        if self._lock >= 0:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def _remove_stale(self) -> None:
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise ConfigurationError(f"listen: {self.path} is not a socket; move it away, or listen elsewhere")
        if answers(self.path, _CONNECT_S):
            raise ConfigurationError(f"listen: another program listens on unix:{self.path}; stop it first")
        self.path.unlink()


def answers(path: Path, timeout_s: float) -> bool:
    """Returns whether a process accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
