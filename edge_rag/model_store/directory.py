"""The model store's directory: one folder per model, a staging area, and untrusted files copied into it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from edge_rag.core.atomic_file import sync
from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ModelFolderInvalid, ModelNotAdded, ModelNotFound, StorageError, StorageFull
from edge_rag.model_store.source import (
    AddProgress,
    GgufSource,
    HubModel,
    LocalFolder,
    ModelArchive,
    OllamaModel,
    PackagedModel,
    Source,
)

_BLOCK_BYTES = 1 << 20
_MAX_ENTRIES = 4096
_RESERVE_BYTES = 64 << 20


def plain_files(folder: Path, ignored: frozenset[str] = frozenset()) -> dict[str, int]:
    """Lists the files of a folder and its subfolders with their sizes.

    Raises:
        ModelFolderInvalid: There is a link, a device, a pipe or a socket, or too many entries, or something cannot be
            read.
    """
    found: dict[str, int] = {}
    pending = [folder]
    entries = 0
    while pending:
        current = pending.pop()
        try:
            listing = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError as error:
            raise ModelFolderInvalid(f"{current} cannot be read: {error.strerror}") from error
        for entry in listing:
            entries += 1
            path = Path(entry.path).relative_to(folder).as_posix()
            if entries > _MAX_ENTRIES:
                raise ModelFolderInvalid(f"{folder}: has more than {_MAX_ENTRIES} entries; this is not a model")
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise ModelFolderInvalid(f"{folder}: {path} is a link; copy the folder with `cp -rL` and add the copy")
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in ignored:
                    pending.append(Path(entry.path))
            elif stat.S_ISREG(status.st_mode):
                found[path] = status.st_size
            else:
                raise ModelFolderInvalid(f"{folder}: {path} is not a plain file; remove it")
    return found


def copy_files(folder: Path, files: dict[str, int], target: Path, progress: AddProgress) -> None:
    """Copies files without following links that replaced them meanwhile.

    Args:
        target: An empty folder.
    """
    check_space(target, sum(files.values()))
    for path, size in files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ModelFolderInvalid(f"{folder}: {path} cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb", buffering=0) as source, (target / path).open("xb") as copy:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise ModelFolderInvalid(f"{folder}: {path} is not a plain file; remove it")
            complete = copy_stream(source, copy, size, progress)
        if not complete:
            raise ModelFolderInvalid(f"{folder}: {path} changed while it was copied; try again")


def copy_stream(source: IO[bytes], copy: IO[bytes], size: int, progress: AddProgress) -> bool:
    """Copies a stream, and no more of it than its size.

    Returns:
        Whether it has exactly ``size`` bytes.
    """
    remaining = size
    while block := source.read(min(_BLOCK_BYTES, remaining + 1)):
        remaining -= len(block)
        if remaining < 0:
            break
        copy.write(block)
        progress.advance(len(block))
    return remaining == 0


def check_space(folder: Path, needed: int) -> None:
    """Checks that a file system has enough space."""
    free = shutil.disk_usage(folder).free
    if free < needed + _RESERVE_BYTES:
        raise StorageFull(
            f"{folder} has {free >> 20} MiB left, {(needed + _RESERVE_BYTES) >> 20} MiB are needed; nothing was added"
        )


def matching(names: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    """Returns the names without a folder that match one of the patterns."""
    return [name for name in names if "/" not in name and any(fnmatchcase(name, pattern) for pattern in patterns)]


_STAGING = ".adding-"
_DOWNLOADS = ".downloads"
_LOCK = ".lock"


class StoreDirectory:
    """Folders of models by name. A change holds its lock, which the kernel releases when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> tuple[str, ...]:
        """Returns the models' names, sorted."""
        if not self.path.is_dir():
            return ()
        return tuple(
            sorted(
                entry.name
                for entry in os.scandir(self.path)
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
        )

    def folder(self, name: str) -> Path:
        """Returns a model's folder."""
        if name not in self.names():
            raise ModelNotFound(name, self.names())
        return self.path / name

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Holds the lock during the block; first removes the remains of an interrupted change."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageError(f"the model store {self.path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for leftover in self.path.glob(f"{_STAGING}*"):
                shutil.rmtree(leftover)
            yield
        except BlockingIOError as error:
            raise ModelNotAdded(
                f"the model store {self.path} is being changed by another process; try again"
            ) from error
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yields an empty folder on the store's file system, which is deleted after the block.

        To be used inside ``changing``.
        """
        folder = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.path))
        try:
            yield folder
        except OSError as error:
            if error.errno in (28, 122):  # no space, quota
                raise StorageFull(f"there is no space for the model in {self.path}; nothing was added") from error
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def install(self, made: Path, name: str) -> Path:
        """Moves a finished folder to its name atomically, after everything in it is synced."""
        target = self.path / name
        sync_tree(made)
        try:
            # rename() replaces an empty folder only, and there is none.
            made.rename(target)
        except OSError as error:
            if target.exists():
                raise ModelNotAdded(f"a model {name} exists; remove it first or choose another --name") from error
            raise
        sync(self.path)
        return target

    def delete(self, name: str) -> None:
        """Deletes a model: first renames its folder, so that it is no model any more."""
        folder = self.folder(name)
        removed = self.path / f"{_STAGING}removed-{name}"
        shutil.rmtree(removed, ignore_errors=True)
        folder.rename(removed)
        sync(self.path)
        shutil.rmtree(removed)

    def downloads(self) -> Path:
        """Returns the folder of fetched files whose model is not added yet; creates it if necessary."""
        folder = self.path / _DOWNLOADS
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def refuse_hard_links(folder: Path) -> None:
    """Checks that no file of a store's folder has another hard link, through which it could be changed."""
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_file() and status.st_nlink > 1:
            raise ModelNotAdded(f"model folder {folder}: {path.relative_to(folder)} has another name; add it again")


def sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


def provenance_of(source: Source, copy: Path, commit: str | None) -> str:
    """Describes a model's source with the commit it was fetched at, or else with a hash of its content."""
    files = sorted(plain_files(copy))
    weights = next((path for path in files if path.endswith(".gguf")), None)
    if commit is not None:
        file = f", {weights}" if weights is not None and isinstance(source, HubModel) and not source.file else ""
        return f"{source}{file}, commit {commit}"
    match source:
        case HubModel():
            named = str(source)
        case LocalFolder():
            named = f"folder {source.path.name}"
        case GgufSource():
            named = source.file_name
        case ModelArchive():
            named = f"archive {source.path.name}"
        case OllamaModel():
            named = str(source)
        case PackagedModel():
            package = source.package
            named = f"{package.distribution} {package.version}, {Path(package.member).name}"
    if weights is not None and not isinstance(source, LocalFolder):
        return f"{named}, SHA-256 {file_sha256(copy / weights)}"
    lines = "".join(f"{file_sha256(copy / path)}  {path}\n" for path in files)
    return f"{named}, SHA-256 of its files' hashes {hashlib.sha256(lines.encode()).hexdigest()}"
