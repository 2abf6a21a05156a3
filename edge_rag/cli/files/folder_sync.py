"""Keeps the documents of a collection in sync with the files of a folder.

``scan_folder`` reads the folder, ``plan_sync`` decides what to upload and delete, and the state file keeps the results
across restarts.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from edge_rag.cli.files.selection import FileSelection
from edge_rag.core.atomic_file import replace_file
from edge_rag.errors import ConfigurationError, StorageCorrupt, StorageError


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as found by a scan.

    Attributes:
        modified_ns: Time of the last write, nanoseconds since 1970.
        problem: Why it cannot be uploaded, for example a FIFO; empty if it can.
    """

    size_bytes: int
    modified_ns: int
    inode: int
    problem: str = ""


class SyncStatus(Enum):
    """The result for a file; the values are those of the state file."""

    UPLOADED = "taken"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SyncedFile:
    """A file that was processed.

    Attributes:
        reason: Why it failed; empty otherwise.
        owned: Whether this sync created the document; only owned documents are deleted with their file.
    """

    state: FileState
    status: SyncStatus
    reason: str
    owned: bool


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The changes to make.

    Attributes:
        unsettled: Names of files that changed or disappeared since the previous scan. They wait for the next scan,
            because an editor may be replacing them.
    """

    upload: tuple[str, ...]
    reject: tuple[str, ...]
    delete: tuple[str, ...]
    unsettled: tuple[str, ...]


def plan_sync(
    current: Mapping[str, FileState], previous: Mapping[str, FileState], synced: Mapping[str, SyncedFile]
) -> SyncPlan:
    """Decides what to upload and delete.

    Apply uploads before deletions, so that a renamed document is always there.

    Args:
        previous: The files by name, from the scan before.
    """
    changed = [name for name, state in current.items() if name not in synced or synced[name].state != state]
    settled = [name for name in changed if current[name].problem or previous.get(name) == current[name]]
    gone = [name for name in synced if name not in current]
    return SyncPlan(
        upload=tuple(sorted(name for name in settled if not current[name].problem)),
        reject=tuple(sorted(name for name in settled if current[name].problem)),
        delete=tuple(sorted(name for name in gone if name not in previous)),
        unsettled=tuple(sorted({*changed} - {*settled} | {name for name in gone if name in previous})),
    )


def scan_folder(root: Path, max_bytes: int) -> dict[str, FileState]:
    """Returns the files below a folder by name, relative to it with forward slashes; opens no file.

    Hidden files and folders are skipped, and those that its ``.edgeragignore`` names. Symbolic links are followed only
    to files inside the folder. Links out of it, FIFOs, sockets, devices, files over ``max_bytes`` and names that are
    not UTF-8 have a ``problem``.

    Raises:
        ConfigurationError: The folder is missing or cannot be read; an unreachable share does not count as empty.
    """
    try:
        inside = root.resolve(strict=True)
        with os.scandir(root):
            pass
        return dict(_files(root, root, inside, max_bytes, FileSelection().within(root)))
    except OSError as error:
        raise ConfigurationError(f"{error.filename or root} cannot be read: {error.strerror}") from error


def _files(
    folder: Path, root: Path, inside: Path, max_bytes: int, selection: FileSelection
) -> Iterator[tuple[str, FileState]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            name = path.relative_to(root).as_posix()
            is_folder = entry.is_dir(follow_symlinks=False)
            if not selection.takes(name, folder=is_folder):
                continue
            if is_folder:
                yield from _files(path, root, inside, max_bytes, selection)
                continue
            try:
                yield name.encode("utf-8", "replace").decode(), _file_state(path, name, inside, max_bytes)
            except FileNotFoundError:
                continue  # deleted during the scan, or a broken link


def _file_state(path: Path, name: str, inside: Path, max_bytes: int) -> FileState:
    link = path.is_symlink()
    state = path.stat()
    return FileState(
        state.st_size, state.st_mtime_ns, state.st_ino, _problem(path, name, state, link, inside, max_bytes)
    )


def _problem(path: Path, name: str, state: os.stat_result, link: bool, inside: Path, max_bytes: int) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if link and not path.resolve().is_relative_to(inside):
        return "a symbolic link out of the folder"
    if not stat.S_ISREG(state.st_mode):
        return "not a regular file"
    if state.st_size > max_bytes:
        return f"has {state.st_size:,} bytes, at most {max_bytes:,} are uploaded (--most-mib)"
    return ""


_FORMAT: Final = 1


def watch_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "edge-rag", "watch")


def state_file(folder: Path, collection: str, server: str) -> Path:
    identity = hashlib.sha256("\0".join((str(folder), collection, server)).encode()).hexdigest()[:24]
    return watch_folder() / f"{identity}.json"


def read_state(path: Path) -> dict[str, SyncedFile]:
    """Reads the state file; empty if there is none.

    Raises:
        StorageCorrupt: The file was altered or is not readable.
    """
    try:
        document = json.loads(path.read_bytes())
        content = document["files"]
        if document["format"] != _FORMAT or document["sha256"] != _digest(content):
            raise ValueError("it was altered")
        return {
            name: SyncedFile(_read_file(entry["look"]), SyncStatus(entry["fate"]), entry["reason"], entry["brought_in"])
            for name, entry in content.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageCorrupt(
            f"{path} cannot be used: {error}. Delete it to start over: every file is then compared again, and "
            "documents of files that were deleted meanwhile stay"
        ) from error


def _read_file(entry: Mapping[str, Any]) -> FileState:
    return FileState(entry["size_bytes"], entry["modified_ns"], entry["inode"], entry["refused"])


def write_state(path: Path, synced: Mapping[str, SyncedFile]) -> None:
    """Replaces the state file atomically.

    Raises:
        StorageError: It cannot be written.
    """
    content = {
        name: {
            "look": _file_json(entry.state),
            "fate": entry.status.value,
            "reason": entry.reason,
            "brought_in": entry.owned,
        }
        for name, entry in synced.items()
    }
    document = {"format": _FORMAT, "sha256": _digest(content), "files": content}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, json.dumps(document, ensure_ascii=False).encode())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _file_json(state: FileState) -> dict[str, Any]:
    return {
        "size_bytes": state.size_bytes,
        "modified_ns": state.modified_ns,
        "inode": state.inode,
        "refused": state.problem,
    }


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
