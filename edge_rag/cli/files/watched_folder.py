"""What a watched folder holds, what of it was handed over, and what is to be done: values and one decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


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
