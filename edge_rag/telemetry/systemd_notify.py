"""What the daemon tells the service manager that started it, in systemd's protocol: datagrams to a socket of it.

The libraries for it are either a binding of libsystemd, which a container has not, or not kept up any more.
See sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Final

_SEND_S: Final = 1.0
"""How long a message that must arrive may wait for a manager that is busy."""


class SystemdNotifier:
    """Tells a service manager how the daemon is. Any thread; what cannot be delivered is lost without an error.

    Args:
        address: Path of the manager's socket, with ``@`` before an abstract one; None where no manager asks.
        watchdog_s: Time after which the manager takes silence for a hang, seconds; None where it does not watch.
        clock: Monotonic seconds.
    """

    def __init__(
        self, address: str | None, watchdog_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = None if address is None else address.replace("@", "\0", 1) if address[0] == "@" else address
        self._interval_s = None if watchdog_s is None or address is None else watchdog_s / 2
        self._clock = clock
        self._fed = clock()
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address is not None else None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> SystemdNotifier:
        """Takes what a manager put into the environment out of it, so that programs started later do not speak for us.

        A value that makes no sense counts as none: a daemon that serves is worth more than one that is watched.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        meant_for = environment.pop("WATCHDOG_PID", str(os.getpid()))
        watched = microseconds.isdecimal() and int(microseconds) > 0 and meant_for == str(os.getpid())
        return cls(address if address[:1] in ("/", "@") else None, int(microseconds) / 1e6 if watched else None)

    def status(self, text: str) -> None:
        """Says in a line for people what the daemon is doing."""
        self._send({"STATUS": text})

    def ready(self, text: str) -> None:
        """Says that the daemon serves, for the first time or after a reload, with a line for people."""
        self._send({"READY": "1", "STATUS": text})

    def reloading(self) -> None:
        """Says that settings are being read again; ``ready`` ends it."""
        self._send({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000), "STATUS": "reading settings"})

    def stopping(self, text: str) -> None:
        """Says that the daemon drains, with a line for people."""
        self._send({"STOPPING": "1", "STATUS": text})

    def alive(self) -> None:
        """Says that the work goes on; call it as often as it does. Never waits; sent at half of the watchdog's time."""
        if self._interval_s is None:
            return
        now = self._clock()
        if now - self._fed >= self._interval_s and self._send({"WATCHDOG": "1"}, wait_s=0):
            self._fed = now

    def close(self) -> None:
        """Lets the socket go."""
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
