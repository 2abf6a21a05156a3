"""Cache of graphs that a provider compiled, kept between starts.

Compiling takes seconds to minutes, and the result fits one model, one compiler and one kind of device. It is stored in
a folder named after a digest of all of these. Beside the graphs lies ``compiled.json``, with the full key and the size
and SHA-256 of each graph, which is replaced as a whole after each graph. A graph that does not match it, that has
another key, or that another user could have written is never opened; it is compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.core.atomic_file import replace_file, sync
from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import StorageError
from edge_rag.runtime.model_folder.strict_json import parse_object

_DESCRIPTION: Final = "compiled.json"
_DESCRIPTION_BYTES: Final = 1 << 20
_DIGITS: Final = 24


@dataclass(frozen=True, slots=True)
class CompiledKey:
    """The versions and the device that a compiled graph fits."""

    model: str
    lowering: str
    compiler: str
    device: str
    options: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Returns the key as a JSON object."""
        return {
            "model": self.model,
            "lowering": self.lowering,
            "compiler": self.compiler,
            "device": self.device,
            "options": dict(sorted(self.options.items())),
        }

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:_DIGITS]


class CompiledGraphs:
    """The compiled graphs of one model for one provider. Used by one thread at a time."""

    def __init__(self, root: Path, name: str, key: CompiledKey) -> None:
        """Reads the cached graphs of a key.

        Args:
            root: Folder of all compiled graphs; created if missing.
            key: What the graphs must fit.
        """
        self.folder = root / f"{name}-{key.digest()}"
        self._name = name
        self._key = key.to_json()
        self._values: dict[str, float] = {}
        self._files: dict[str, dict[str, object]] = {}
        try:
            for folder in (root, self.folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _refuse_foreign(folder)
        except OSError as error:
            raise StorageError(f"{self.folder}: compiled graphs cannot be kept there: {error.strerror}") from error
        self._read()

    def find(self, graph: str) -> Path | None:
        """Returns the file of a graph if it is cached and unaltered; None where it must be compiled."""
        record, path = self._files.get(graph), self.folder / graph
        if record is None or not _is_ours(path):
            return None
        try:
            found = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        except OSError:
            return None
        return path if record == found else None

    def value(self, name: str) -> float | None:
        """Returns a number stored with the graphs; None if there is none."""
        return self._values.get(name)

    def store(self, graph: str, content: bytes, values: Mapping[str, float]) -> Path:
        """Stores a graph, and then its record."""
        path = self.folder / graph
        self._files[graph] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        self._values = dict(values)
        try:
            replace_file(path, content, mode=0o600)
            self._describe()
        except OSError as error:
            raise StorageError(f"{path}: a compiled graph cannot be written: {error.strerror}") from error
        return path

    def remove_unverified(self) -> int:
        """Removes every file without a matching record, before the provider reads the folder itself."""
        left = 0
        try:
            for path in sorted(self.folder.iterdir()):
                if path.name == _DESCRIPTION:
                    continue
                if self.find(path.name) is not None:
                    left += 1
                elif path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        except OSError as error:
            raise StorageError(f"{self.folder}: what is not ours cannot be removed: {error}") from error
        self._files = {name: record for name, record in self._files.items() if (self.folder / name).exists()}
        return left

    def record(self) -> int:
        """Records the files that the provider wrote into the folder."""
        files: dict[str, dict[str, object]] = {}
        try:
            for path in sorted(self.folder.iterdir()):
                if path.name == _DESCRIPTION or not stat.S_ISREG(path.lstat().st_mode):
                    continue
                path.chmod(0o600)
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                    os.fsync(file.fileno())
                    files[path.name] = {"bytes": file.tell(), "sha256": digest}
            if files != self._files:
                self._files = files
                self._describe()
        except OSError as error:
            raise StorageError(f"{self.folder}: compiled graphs cannot be kept there: {error.strerror}") from error
        return len(files)

    def remove_other_keys(self) -> None:
        """Removes graphs of the same model and provider with other keys."""
        of_the_name = re.compile(rf"{re.escape(self._name)}-[0-9a-f]{{{_DIGITS}}}")
        try:
            for folder in self.folder.parent.iterdir():
                if folder != self.folder and of_the_name.fullmatch(folder.name) and not folder.is_symlink():
                    shutil.rmtree(folder)
        except OSError as error:
            raise StorageError(f"{self.folder.parent}: old compiled graphs cannot be removed: {error}") from error

    def _describe(self) -> None:
        description = {"key": self._key, "values": self._values, "files": self._files}
        replace_file(self.folder / _DESCRIPTION, json.dumps(description, indent=2).encode(), mode=0o600)
        sync(self.folder.parent)

    def _read(self) -> None:
        path = self.folder / _DESCRIPTION
        if not _is_ours(path):
            return
        try:
            with path.open("rb") as file:
                description = parse_object(file.read(_DESCRIPTION_BYTES))
        except (OSError, ValueError):
            return
        values, files = description.get("values"), description.get("files")
        if description.get("key") != self._key or not isinstance(values, dict) or not isinstance(files, dict):
            return
        if all(type(value) in (int, float) for value in values.values()):
            self._values = {name: float(value) for name, value in values.items()}
            self._files = {name: record for name, record in files.items() if isinstance(record, dict)}


def _refuse_foreign(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not _only_ours(status):
        raise StorageError(
            f"{folder}: compiled graphs are run as they are, and others could write there; remove it, or take it back "
            "with chown and chmod go-w"
        )


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _only_ours(status)


def _only_ours(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
