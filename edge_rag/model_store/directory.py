"""The store's directory: one closed folder a model, and a place beside them where a model is made before it is one.

Where a model is from, put into words that another machine can check.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edge_rag.core.atomic_file import sync
from edge_rag.errors import ModelNotAdded, ModelNotFound, StorageError, StorageFull
from edge_rag.model_store.copying import plain_files
from edge_rag.model_store.source import HubModel, Source

_STAGING = ".adding-"
_DOWNLOADS = ".downloads"
_LOCK = ".lock"


class StoreDirectory:
    """Folders by name. What changes it holds its lock, which the kernel lets go however the process ends.

    Attributes:
        path: The directory; made with the first model.
    """

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
        """Returns a model's folder.

        Raises:
            ModelNotFound: There is none of that name.
        """
        if name not in self.names():
            raise ModelNotFound(name, self.names())
        return self.path / name

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Holds the lock, and clears away what an interrupted change left behind.

        Raises:
            ModelNotAdded: Another process is changing the store.
            StorageError: The directory cannot be used.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageError(f"the model store {self.path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self.path.glob(f"{_STAGING}*"):
                shutil.rmtree(left)
            yield
        except BlockingIOError as error:
            raise ModelNotAdded(
                f"the model store {self.path} is being changed by another process; try again"
            ) from error
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Makes an empty folder on the store's file system that is gone when the block ends, however it ends.

        To be used while ``changing``.

        Raises:
            StorageFull: There is no room.
        """
        folder = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.path))
        try:
            yield folder
        except OSError as error:
            if error.errno in (28, 122):  # no space, quota
                raise StorageFull(f"there is no room for the model in {self.path}; nothing was added") from error
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def install(self, made: Path, name: str) -> Path:
        """Gives a finished folder its name, all at once, after everything in it is on the disk.

        Args:
            made: A folder of this file system, complete.
            name: The model's name.

        Returns:
            Where it is now.

        Raises:
            ModelNotAdded: There is a model of that name.
        """
        target = self.path / name
        sync_tree(made)
        try:
            # To a folder's name only an empty folder would give way, and there is none.
            made.rename(target)
        except OSError as error:
            if target.exists():
                raise ModelNotAdded(f"there is a model {name} already; remove it first or choose a --name") from error
            raise
        sync(self.path)
        return target

    def delete(self, name: str) -> None:
        """Deletes a model, first its manifest's claim to be one.

        Raises:
            ModelNotFound: There is none of that name.
        """
        folder = self.folder(name)
        grave = self.path / f"{_STAGING}removed-{name}"
        shutil.rmtree(grave, ignore_errors=True)
        folder.rename(grave)
        sync(self.path)
        shutil.rmtree(grave)

    def downloads(self) -> Path:
        """Returns the folder where fetched files wait until their model is added; made if need be."""
        folder = self.path / _DOWNLOADS
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def refuse_hard_links(folder: Path) -> None:
    """Checks that each file of a store's folder has no other name, through which it could be changed.

    Raises:
        ModelNotAdded: One has; names it.
    """
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_file() and status.st_nlink > 1:
            raise ModelNotAdded(f"model folder {folder}: {path.relative_to(folder)} has another name; add it again")


def sync_tree(folder: Path) -> None:
    """Brings every file and folder below to the disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


def origin_of(source: Source, copy: Path, commit: str | None) -> str:
    """Names a model's source with the commit it was fetched at, or else with a hash of its content.

    Args:
        source: What the operator named.
        copy: What was taken of it.
        commit: The commit; None where it was not fetched.
    """
    if commit is not None:
        return f"{source}, commit {commit}"
    named = str(source) if isinstance(source, HubModel) else f"folder {source.path.name}"
    lines = "".join(f"{_sha256(copy / path)}  {path}\n" for path in sorted(plain_files(copy)))
    return f"{named}, SHA-256 of its files' hashes {hashlib.sha256(lines.encode()).hexdigest()}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
