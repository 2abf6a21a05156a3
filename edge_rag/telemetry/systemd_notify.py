"""Notifications to the service manager with systemd's protocol: datagrams to its socket.

Existing libraries are either bindings of libsystemd, which containers lack, or unmaintained. See sd_notify(3) and
sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Final

_SEND_S: Final = 1.0
"""Longest time to send a message that must arrive, to a busy manager, seconds."""

_STEP_S: Final = 300
"""How long the manager lets a start go on after a sign of progress, seconds; a longer timeout of the unit stays."""


class SystemdNotifier:
    """Sends notifications to a service manager. Any thread; a failed message is dropped without an error.

    Args:
        address: Path of the manager's socket, with ``@`` before an abstract one; None without a manager.
        watchdog_s: Watchdog timeout of the manager, seconds; None without a watchdog.
        clock: Monotonic seconds.
    """

    def __init__(
        self, address: str | None, watchdog_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = None if address is None else address.replace("@", "\0", 1) if address[0] == "@" else address
        self._interval_s = None if watchdog_s is None or address is None else watchdog_s / 2
        self._clock = clock
        self._last_sent = clock()
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address is not None else None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> SystemdNotifier:
        """Takes the manager's variables out of the environment, so that child processes cannot notify in our name.

        An invalid value counts as missing, so that the daemon still starts.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        watched_pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
        watched = microseconds.isdecimal() and int(microseconds) > 0 and watched_pid == str(os.getpid())
        return cls(address if address[:1] in ("/", "@") else None, int(microseconds) / 1e6 if watched else None)

    def status(self, text: str) -> None:
        self._send({"STATUS": text})

    def progress(self, text: str) -> None:
        self._send({"STATUS": text, "EXTEND_TIMEOUT_USEC": str(_STEP_S * 1_000_000)})

    def ready(self, text: str) -> None:
        self._send({"READY": "1", "STATUS": text})

    def reloading(self) -> None:
        self._send({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000), "STATUS": "reading settings"})

    def stopping(self, text: str) -> None:
        self._send({"STOPPING": "1", "STATUS": text})

    def alive(self) -> None:
        """Reports progress to the watchdog. May be called at any rate; sends at half of the watchdog's timeout, never
        blocks.
        """
        if self._interval_s is None:
            return
        now = self._clock()
        if now - self._last_sent >= self._interval_s and self._send({"WATCHDOG": "1"}, wait_s=0):
            self._last_sent = now

    def close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _send(self, fields: dict[str, str], wait_s: float = _SEND_S) -> bool:
        message = "\n".join(f"{key}={' '.join(value.split())}" for key, value in fields.items())
        with self._lock:
            if self._socket is None or self._address is None:
                return False
            try:
                self._socket.settimeout(wait_s)
                self._socket.sendto(message.encode(), self._address)
            except OSError:
                return False
            return True
