"""What was written when, and what of it is on a disk that lost its power."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("<c2I2Q")


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of a file or folder; see ``shim.c`` for the kinds."""

    kind: str
    path: str
    other: str
    offset: int
    data: bytes


def read_log(path: Path) -> list[Operation]:
    """Reads what the shim logged."""

    def operations() -> Iterator[Operation]:
        content = memoryview(path.read_bytes())
        at = 0
        while at + _HEAD.size <= len(content):
            # The C side writes without padding: kind, two lengths, two numbers.
            kind, first, second, offset, size = _HEAD.unpack_from(content, at)
            at += _HEAD.size
            name, other = bytes(content[at : at + first]), bytes(content[at + first : at + first + second])
            at += first + second
            data = bytes(content[at : at + size]) if kind == b"w" else b""
            at += len(data)
            yield Operation(kind.decode(), name.decode(), other.decode(), offset, data)

    return list(operations())


@dataclass(slots=True)
class _Inode:
    """A file's bytes: those that are synced, and changes that are not yet."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)

    def content(self, pending: list[Operation]) -> bytes:
        made = bytearray(self.synced)
        for operation in pending:
            match operation.kind:
                case "w":
                    past = operation.offset + len(operation.data)
                    made.extend(bytes(max(0, past - len(made))))
                    made[operation.offset : past] = operation.data
                case "t":
                    made.extend(bytes(max(0, operation.offset - len(made))))
                    del made[operation.offset :]
                case "e":
                    made.clear()
        return bytes(made)

    def sync(self) -> None:
        self.synced = bytearray(self.content(self.pending))
        self.pending = []


class Disk:
    """A folder on a disk with a write-back cache, fed with what a process did.

    A file's bytes survive a loss of power from its last sync on, a folder's entries from the folder's last sync on;
    what was not synced survives in any part.
    """

    def __init__(self, start: Path, root: Path) -> None:
        self._root = str(root)
        self._now: dict[str, _Inode] = {}
        for path in start.rglob("*"):
            if path.is_file() and not path.name.endswith("-shm"):
                self._now[path.relative_to(start).as_posix()] = _Inode(bytearray(path.read_bytes()))
        self._synced = dict(self._now)
        self._entries: list[tuple[str, dict[str, _Inode]]] = []

    def apply(self, operation: Operation) -> None:
        """Does what the process did."""
        name = self._name(operation.path)
        match operation.kind:
            case "c":
                self._now[name] = _Inode()
                self._changed(name)
            case "w" | "t" | "e":
                self._now[name].pending.append(operation)
            case "r":
                target = self._name(operation.other)
                self._now[target] = self._now.pop(name)
                self._changed(target)
            case "u":
                self._now.pop(name, None)
                self._changed(name)
            case "s" if name in self._now:
                self._now[name].sync()
            case "s":
                for entry in {*self._synced, *self._now}:
                    if _folder(entry) == name:
                        self._keep(entry, self._now)
                self._entries = [(folder, state) for folder, state in self._entries if folder != name]

    def after_power_loss(self, into: Path, draw: random.Random | None) -> None:
        """Writes a state that the disk may be in; without a draw that in which nothing unsynced survived."""
        entries = dict(self._synced)
        if draw is not None and self._entries:
            for folder, state in self._entries[: draw.randint(0, len(self._entries))]:
                for entry in {*entries, *state}:
                    if _folder(entry) == folder:
                        if entry in state:
                            entries[entry] = state[entry]
                        else:
                            entries.pop(entry, None)
        for name, inode in entries.items():
            kept = [] if draw is None else [change for change in inode.pending if draw.random() < 0.5]
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(inode.content(kept))

    def _changed(self, name: str) -> None:
        self._entries.append((_folder(name), dict(self._now)))

    def _keep(self, entry: str, state: dict[str, _Inode]) -> None:
        if entry in state:
            self._synced[entry] = state[entry]
        else:
            self._synced.pop(entry, None)

    def _name(self, path: str) -> str:
        return path.removeprefix(self._root).removeprefix("/")


def _folder(entry: str) -> str:
    return entry.rpartition("/")[0]
