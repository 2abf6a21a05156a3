"""Looks at a folder: which files it has and which of them are not to be touched.

What a watched folder holds, what of it was handed over, and what is to be done: values and one decision.

What a watch remembers, in a file of the user's state directory, so that it survives a restart.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from edge_rag.errors import ConfigurationError, StorageCorrupt, StorageError


@dataclass(frozen=True, slots=True)
class Look:
    """A file as it was found.

    Attributes:
        size_bytes: Its size.
        modified_ns: When it was last written, nanoseconds since 1970.
        inode: Its number, so that another file of the same name, size and time is told apart.
        refused: Why it is not handed over, for example a FIFO; empty where it is.
    """

    size_bytes: int
    modified_ns: int
    inode: int
    refused: str = ""


class Fate(Enum):
    """What became of a file."""

    TAKEN = "taken"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A file that was dealt with.

    Attributes:
        look: How it looked then.
        fate: What became of it.
        reason: Why it failed; empty otherwise.
        brought_in: Whether the document of this name is there because of this folder; only such are deleted with it.
    """

    look: Look
    fate: Fate
    reason: str
    brought_in: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done.

    Attributes:
        hand_over: Names of files to hand over.
        refuse: Names of files to note as failed.
        remove: Names of documents whose file is gone.
        unsettled: Names of files that changed or went since they were last looked at: to be looked at again before
            anything, since an editor may be about to put another in their place.
    """

    hand_over: tuple[str, ...]
    refuse: tuple[str, ...]
    remove: tuple[str, ...]
    unsettled: tuple[str, ...]


def work_for(now: Mapping[str, Look], before: Mapping[str, Look], remembered: Mapping[str, Remembered]) -> Work:
    """Decides what is to be done about a folder.

    New names come before names that are gone, so that a renamed document is there all the time.

    Args:
        now: The folder's files by name, as they are.
        before: As they were when they were last looked at.
        remembered: What was dealt with.
    """
    due = [name for name, look in now.items() if name not in remembered or remembered[name].look != look]
    settled = [name for name in due if now[name].refused or before.get(name) == now[name]]
    gone = [name for name in remembered if name not in now]
    return Work(
        hand_over=tuple(sorted(name for name in settled if not now[name].refused)),
        refuse=tuple(sorted(name for name in settled if now[name].refused)),
        remove=tuple(sorted(name for name in gone if name not in before)),
        unsettled=tuple(sorted({*due} - {*settled} | {name for name in gone if name in before})),
    )


def look_at(root: Path, most_bytes: int) -> dict[str, Look]:
    """Returns the files below a folder by name: relative to it, with forward slashes. Nothing is opened.

    Hidden files and folders are left out. Symbolic links are followed only to files inside the folder; what points out
    of it, FIFOs, sockets, devices, files that are too large and names that are not UTF-8 are refused.

    Args:
        root: The folder.
        most_bytes: Largest file.

    Raises:
        ConfigurationError: The folder is gone or cannot be read; an unreachable share is no empty one.
    """
    try:
        inside = root.resolve(strict=True)
        with os.scandir(root):
            pass
        return dict(_files(root, root, inside, most_bytes))
    except OSError as error:
        raise ConfigurationError(f"{error.filename or root} cannot be read: {error.strerror}") from error


def _files(folder: Path, root: Path, inside: Path, most_bytes: int) -> Iterator[tuple[str, Look]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            name = path.relative_to(root).as_posix()
            if entry.is_dir(follow_symlinks=False):
                yield from _files(path, root, inside, most_bytes)
                continue
            try:
                yield name.encode("utf-8", "replace").decode(), _look(path, name, inside, most_bytes)
            except FileNotFoundError:
                continue  # it went while it was looked at, or is a link to nothing


def _look(path: Path, name: str, inside: Path, most_bytes: int) -> Look:
    link = path.is_symlink()
    state = path.stat()
    return Look(state.st_size, state.st_mtime_ns, state.st_ino, _problem(path, name, state, link, inside, most_bytes))


def _problem(path: Path, name: str, state: os.stat_result, link: bool, inside: Path, most_bytes: int) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if link and not path.resolve().is_relative_to(inside):
        return "a symbolic link out of the folder"
    if not stat.S_ISREG(state.st_mode):
        return "not a regular file"
    if state.st_size > most_bytes:
        return f"has {state.st_size:,} bytes, at most {most_bytes:,} are handed over (--most-mib)"
    return ""


_FORMAT: Final = 1


def state_file(folder: Path, collection: str, server: str) -> Path:
    """Where the watch of a folder for a collection of a server remembers: below XDG_STATE_HOME or ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    identity = hashlib.sha256("\0".join((str(folder), collection, server)).encode()).hexdigest()[:24]
    return Path(home, "edge-rag", "watch", f"{identity}.json")


def read_state(path: Path) -> dict[str, Remembered]:
    """Reads what was remembered; nothing if there is no file.

    Raises:
        StorageCorrupt: The file is not what was written.
    """
    try:
        document = json.loads(path.read_bytes())
        content = document["files"]
        if document["format"] != _FORMAT or document["sha256"] != _digest(content):
            raise ValueError("it was altered")
        return {
            name: Remembered(Look(**entry["look"]), Fate(entry["fate"]), entry["reason"], entry["brought_in"])
            for name, entry in content.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageCorrupt(
            f"{path} cannot be used: {error}. Remove it to begin anew: every file is then compared again, and "
            "documents whose file is gone meanwhile stay"
        ) from error


def write_state(path: Path, remembered: Mapping[str, Remembered]) -> None:
    """Replaces what is remembered, whole or not at all.

    Raises:
        StorageError: It could not be written.
    """
    content = {
        name: {
            "look": asdict(entry.look),
            "fate": entry.fate.value,
            "reason": entry.reason,
            "brought_in": entry.brought_in,
        }
        for name, entry in remembered.items()
    }
    document = {"format": _FORMAT, "sha256": _digest(content), "files": content}
    partial = path.with_suffix(".part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
