"""Verifies model folders: every byte matches the manifest before anything of a folder is opened.

A model folder is code: a graph may name external data files and a configuration may name a library to load. So a folder
is closed: it contains exactly the files its manifest lists, as plain files, and each is read and hashed before ONNX
Runtime or a tokenizer sees it. A matching hash does not make content safe, so contents are then checked against lists
of what is allowed (``graph_check``).

Hard links need a decision of their own. Installers (uv) and image-based systems (OSTree, Nix) hard-link files from a
store routinely, so a link count above one proves nothing. Content cannot be smuggled in through a hard link either: the
author of the manifest had to know the linked file's SHA-256. But a second name allows changing the content from outside
the folder, past the folder's own permissions, after the check. A hard-linked file is therefore refused exactly where a
user other than root or this process's user could write to it. Symbolic links are always refused: their targets can
change without any file being written.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE
from edge_rag.runtime.model_folder.graph_check import check_contents
from edge_rag.runtime.model_folder.manifest import (
    MANIFEST_NAME,
    FileRecord,
    GeneratorForm,
    ModelManifest,
    ModelRole,
    parse_manifest,
    render_manifest,
)

__all__ = [
    "FileRecord",
    "GeneratorForm",
    "ModelManifest",
    "ModelRole",
    "read_manifest",
    "verify_model_folder",
    "write_manifest",
]

_MANIFEST_BYTES = 1 << 20
_READ_BYTES = 1 << 20


def verify_model_folder(
    folder: Path,
    role: ModelRole | None = None,
    required: tuple[str, ...] = (),
    on_read: Callable[[int], None] | None = None,
) -> ModelManifest:
    """Checks a model folder against its manifest, byte for byte, and the content of its files.

    The check holds until the folder is written to; it must belong to the user that runs or installed the daemon.

    Raises:
        ModelFolderInvalid: The folder has no readable manifest; or a file is missing, truncated, altered, not listed, a
            link, not a plain file, or contains something that is not allowed; or the model has another role; or a
            required file is not listed. Names the folder and the file, and what to do.
    """
    if not folder.is_dir():
        raise ModelFolderInvalid(f"{folder}: there is no such model folder; check the path of the model")
    manifest = read_manifest(folder)
    if role is not None and manifest.role is not role:
        raise ModelFolderInvalid(
            f"{folder}: this model is a {manifest.role.value}, a {role.value} is wanted; name another model folder"
        )
    for path in required:
        if path not in manifest.files:
            raise _invalid(folder, MANIFEST_NAME, f"does not list {path}, which a {manifest.role.value} needs")
    if manifest.form is GeneratorForm.SERIAL and GENAI_CONFIG_FILE not in manifest.files:
        raise _invalid(folder, MANIFEST_NAME, f"does not list {GENAI_CONFIG_FILE}, which its form needs")
    present = dict(_plain_files(folder))
    for path in sorted(manifest.files.keys() - present.keys()):
        raise _invalid(folder, path, "is missing", "restore the folder")
    for path in sorted(present.keys() - manifest.files.keys() - {MANIFEST_NAME}):
        raise _invalid(folder, path, "is not in the manifest", "remove it if it is not part of the model")
    for path, record in sorted(manifest.files.items()):
        _verify_file(folder, path, record, on_read)
    sizes = {path: record.bytes for path, record in manifest.files.items()}
    try:
        check_contents(sizes, lambda path: _read(folder, path, sizes[path]))
    except ValueError as error:
        raise ModelFolderInvalid(f"model folder {folder}: {error}; do not use it") from error
    return manifest


def write_manifest(
    folder: Path,
    *,
    name: str,
    role: ModelRole,
    licence: str,
    source: str,
    made_by: str,
    parameters: Mapping[str, JsonValue],
) -> ModelManifest:
    """Describes the files of a folder in ``manifest.json``, which replaces an earlier one atomically.

    Args:
        name: Short name, lower case, for example ``minilm-l6``.
    """
    files = {path: _measure(folder, path) for path, _ in sorted(_plain_files(folder)) if path != MANIFEST_NAME}
    content = render_manifest(
        ModelManifest(
            name=name, role=role, licence=licence, source=source, made_by=made_by, parameters=parameters, files=files
        )
    )
    _parse(folder, content)
    # Beside the folder, not in it: an interrupted write must not leave a stray file in a closed folder.
    temporary = folder.with_name(f".{folder.name}.{MANIFEST_NAME}")
    temporary.write_bytes(content)
    temporary.replace(folder / MANIFEST_NAME)
    return verify_model_folder(folder)


def read_manifest(folder: Path) -> ModelManifest:
    """Reads a folder's manifest without checking the files against it."""
    try:
        descriptor = _open_plain(folder, MANIFEST_NAME)
    except FileNotFoundError as error:
        raise ModelFolderInvalid(
            f"{folder}: there is no {MANIFEST_NAME}, so this is not a model folder; check the path of the model"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MANIFEST_BYTES + 1)
    if len(content) > _MANIFEST_BYTES:
        raise _invalid(folder, MANIFEST_NAME, f"is larger than {_MANIFEST_BYTES} bytes")
    return _parse(folder, content)


def _parse(folder: Path, content: bytes) -> ModelManifest:
    try:
        return parse_manifest(content)
    except ValueError as error:
        raise _invalid(folder, MANIFEST_NAME, f"is not a valid manifest: {error}") from error


def _plain_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields each file below a folder with its ``lstat``; refuses everything but plain files and folders."""
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            entries = list(os.scandir(current))
        except OSError as error:
            raise _invalid(
                folder, current.relative_to(folder).as_posix(), f"cannot be read: {error.strerror}"
            ) from error
        for entry in entries:
            path = Path(entry.path).relative_to(folder).as_posix()
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(Path(entry.path))
            else:
                _refuse_unless_plain(folder, path, status)
                yield path, status


def _refuse_unless_plain(folder: Path, path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _invalid(folder, path, "is a symbolic link", "copy the file it points to into the folder")
    if not stat.S_ISREG(status.st_mode):
        raise _invalid(folder, path, "is not a plain file", "remove it")
    writable_by_others = status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_nlink > 1 and writable_by_others:
        raise _invalid(
            folder, path, "is a hard link to a file that others can write to", "replace the link by a copy of the file"
        )


def _open_plain(folder: Path, path: str) -> int:
    """Opens a file for reading without following a link or blocking on a FIFO; returns the descriptor."""
    location = folder / path
    try:
        _refuse_unless_plain(folder, path, location.lstat())
        descriptor = os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _invalid(folder, path, f"cannot be read: {error.strerror}", "check its permissions") from error
    return descriptor


def _verify_file(folder: Path, path: str, record: FileRecord, on_read: Callable[[int], None] | None) -> None:
    found = _measure(folder, path, record.bytes, on_read)
    if found.bytes < record.bytes:
        problem = f"is truncated: {record.bytes} bytes expected, {found.bytes} found"
        raise _invalid(folder, path, problem, "restore it")
    if found.bytes > record.bytes:
        raise _invalid(folder, path, f"is longer than the {record.bytes} bytes expected", "restore it")
    if found.sha256 != record.sha256:
        raise _invalid(
            folder, path, f"was altered: SHA-256 {record.sha256} expected, {found.sha256} found", "restore it"
        )


def _read(folder: Path, path: str, size: int) -> bytes:
    with os.fdopen(_open_plain(folder, path), "rb") as file:
        return file.read(size)


def _measure(
    folder: Path, path: str, stop_after: int | None = None, on_read: Callable[[int], None] | None = None
) -> FileRecord:
    digest = hashlib.sha256()
    size = 0
    try:
        with os.fdopen(_open_plain(folder, path), "rb", buffering=0) as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
                size += len(block)
                if on_read is not None:
                    on_read(len(block))
                if stop_after is not None and size > stop_after:
                    break
    except OSError as error:
        raise _invalid(folder, path, f"cannot be read: {error.strerror}", "restore it") from error
    return FileRecord(sha256=digest.hexdigest(), bytes=size)


def _invalid(
    folder: Path, path: str, problem: str, remedy: str = "fetch or make the folder again"
) -> ModelFolderInvalid:
    return ModelFolderInvalid(f"model folder {folder}: {path} {problem}; {remedy}")
