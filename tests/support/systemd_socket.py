"""A service manager's side of systemd's protocol: a socket that takes what a daemon says of itself."""

import socket
from collections.abc import Callable
from pathlib import Path

Message = dict[str, str]


class Manager:
    """Owns a notification socket and reads from it, in order."""

    def __init__(self, address: Path | str) -> None:
        self.address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address.replace("@", "\0", 1) if self.address[0] == "@" else self.address)

    def environment(self, watchdog_s: float | None = None) -> dict[str, str]:
        given = {"NOTIFY_SOCKET": self.address}
        return given if watchdog_s is None else given | {"WATCHDOG_USEC": str(round(watchdog_s * 1e6))}

    def next(self, timeout_s: float = 60) -> Message:
        self._socket.settimeout(timeout_s)
        lines = self._socket.recv(1 << 16).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def until(self, wanted: Callable[[Message], bool], timeout_s: float = 60) -> list[Message]:
        read = [self.next(timeout_s)]
        while not wanted(read[-1]):
            read.append(self.next(timeout_s))
        return read

    def waiting(self) -> list[Message]:
        read = []
        while True:
            try:
                read.append(self.next(0))
            except BlockingIOError:
                return read

    def close(self) -> None:
        self._socket.close()


def has(key: str) -> Callable[[Message], bool]:
    return lambda message: key in message
