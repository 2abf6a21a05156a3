"""What a watch remembers, in a file of the user's state directory, so that it survives a restart."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from edge_rag.cli.files.watched_folder import Fate, Look, Remembered
from edge_rag.errors import StorageCorrupt, StorageError

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
