"""A model as one file, to be carried to a box without a network: a tar archive of its folder.

It has plain headers and files alone: no links, no folders, no extended headers. So it is read block by block, and no
header of a hostile one takes more than 512 bytes of memory. The bytes depend on the model and its signature only.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NoReturn

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.directory import check_space
from edge_rag.model_store.signature import SIGNATURE_FILE
from edge_rag.model_store.source import AddProgress, ModelArchive, check_name
from edge_rag.runtime.model_folder.manifest import MANIFEST_NAME, ModelManifest

_BLOCK_BYTES: Final = 1 << 20
_LONGEST_NAME: Final = 100
_MOST_FILES: Final = 4096
_END: Final = bytes(2 * tarfile.BLOCKSIZE)


def write_archive(
    folder: Path, name: str, manifest: ModelManifest, signature: Path | None, target: IO[bytes], progress: AddProgress
) -> None:
    """Writes a model's archive.

    Args:
        signature: File with a signature of the folder; None for none.
    """
    progress.begin("writing it", sum(record.bytes for record in manifest.files.values()))
    _write(f"{name}/{MANIFEST_NAME}", folder / MANIFEST_NAME, target, progress)
    if signature is not None:
        _write(f"{name}/{SIGNATURE_FILE}", signature, target, progress)
    for path, record in sorted(manifest.files.items()):
        if _write(f"{name}/{path}", folder / path, target, progress) != (record.bytes, record.sha256):
            raise ModelFolderInvalid(f"{folder}: {path} does not match its manifest; add the model again")
    target.write(_END)


def _write(name: str, path: Path, target: IO[bytes], progress: AddProgress) -> tuple[int, str]:
    if len(name.encode()) > _LONGEST_NAME:
        raise ModelFolderInvalid(f"{path}: its name has more than {_LONGEST_NAME} bytes with that of the model")
    header = tarfile.TarInfo(name)
    digest, written = hashlib.sha256(), 0
    with path.open("rb") as file:
        header.size = os.fstat(file.fileno()).st_size
        target.write(header.tobuf(tarfile.GNU_FORMAT))
        for block in _blocks(file, header.size):
            target.write(block)
            digest.update(block)
            written += len(block)
            progress.advance(len(block))
    target.write(bytes(-written % tarfile.BLOCKSIZE))
    return written, digest.hexdigest()


def archive_source(archive: Path) -> ModelArchive:
    """Returns an archive as a source, with the name of its model."""
    try:
        with archive.open("rb") as file:
            path, _ = next(_members(file, archive))
    except OSError as error:
        raise ModelNotAdded(f"{archive} cannot be read: {error.strerror}") from error
    return ModelArchive(archive, check_name(path.partition("/")[0]))


def unpack(source: ModelArchive, into: Path, progress: AddProgress) -> None:
    """Writes the files of an archive to an empty folder, which must be checked like any model folder."""
    with source.path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_space(into, size)
        progress.begin("unpacking", size)
        for path, length in _members(file, source.path):
            folder, _, name = path.partition("/")
            if folder != source.name:
                _refuse(source.path, f"{path} is not in {source.name}/")
            target = into / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as copy:
                    for block in _blocks(file, length):
                        copy.write(block)
                        progress.advance(len(block))
                    if copy.tell() < length:
                        _refuse(source.path, "it is truncated")
            except (FileExistsError, NotADirectoryError):
                _refuse(source.path, f"{path} occurs twice")
            file.seek(-length % tarfile.BLOCKSIZE, os.SEEK_CUR)


def _members(file: IO[bytes], archive: Path) -> Iterator[tuple[str, int]]:
    """Yields path and size of each file; the caller reads its bytes and padding before the next one."""
    found = 0
    while (block := file.read(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError):
            _refuse(archive, "it is truncated" if found else "it has no such header")
        found += 1
        parts = header.name.split("/")
        if header.type != tarfile.REGTYPE or header.size < 0 or found > _MOST_FILES:
            _refuse(archive, f"{header.name!r} is not a plain file, or one too many")
        if len(parts) < 2 or not header.name.isprintable() or any(part in ("", ".", "..") for part in parts):
            _refuse(archive, f"{header.name!r} is not a file of a model's folder")
        yield header.name, header.size
    if file.read(len(_END)) != _END[tarfile.BLOCKSIZE :] or not found:
        _refuse(archive, "something follows its end" if found else "it is empty")


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yields up to ``size`` bytes of a file, fewer if it ends before."""
    while size and (block := file.read(min(size, _BLOCK_BYTES))):
        size -= len(block)
        yield block


def _refuse(archive: Path, why: str) -> NoReturn:
    raise ModelNotAdded(
        f"{archive} is not a complete archive of `edge-rag models export`: {why}; copy it again, or unpack what "
        "another program packed and run `edge-rag models add FOLDER`"
    ) from None
