"""Checks of an installation, each on its own, none of them needing a daemon."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from edge_rag.client import Client, ClientError
from edge_rag.errors import DataDirectoryInUse, EdgeRagError

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings

_GIB = 1 << 30
_PROMPT_S = 3.0


class Verdict(Enum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        name: What was checked.
        verdict: What was found; FAIL means that the daemon would not start or not work.
        detail: The facts.
        advice: What to do; empty when all is well.
        lines: Further facts, one a line.
    """

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""
    lines: tuple[str, ...] = ()


def installation_checks() -> Iterator[Check]:
    """Checks what does not depend on settings: Python, libraries, the compiled ops, the machine."""
    yield python_check(sys.version_info[:3], platform.machine())
    yield _onnxruntime()
    yield _faiss()
    yield _ops_library()


def settings_checks(settings: Settings) -> Iterator[Check]:
    """Checks what the daemon would use: models, data directory, address."""
    yield from _models(settings)
    yield data_directory_check(settings.data_directory)
    yield documents_check(settings.data_directory)
    yield address_check(settings.listen)


def python_check(version: tuple[int, int, int], machine: str) -> Check:
    """Checks the interpreter's version."""
    detail = f"{'.'.join(map(str, version))} on {machine}"
    if version < (3, 11, 0):
        return Check("python", Verdict.FAIL, detail, "install Python 3.11 or newer")
    return Check("python", Verdict.OK, detail)


def data_directory_check(directory: Path) -> Check:
    """Checks that a data directory can be written to and has room."""
    existing = next(place for place in (directory, *directory.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(
            "data",
            Verdict.FAIL,
            f"{directory} cannot be written to",
            "set data_directory or its owner (serve --data-dir)",
        )
    free = shutil.disk_usage(existing).free
    state = "" if directory.exists() else ", will be made"
    detail = f"{directory}{state}, {free / _GIB:.1f} GiB free"
    if free < _GIB:
        return Check("data", Verdict.WARN, detail, "free some room; documents are refused when the disk is full")
    return Check("data", Verdict.OK, detail)


def documents_check(directory: Path) -> Check:
    """Reads everything that is stored, whether a daemon uses it or not, and checks it."""
    from edge_rag.storage.archive import DATABASE
    from edge_rag.storage.backup import check_database
    from edge_rag.storage.data_directory import DataDirectory
    from edge_rag.storage.write_ahead_log import require_whole_log

    database = directory / DATABASE
    if not database.exists():
        return Check("documents", Verdict.OK, "none yet")
    try:
        with suppress(DataDirectoryInUse), DataDirectory(directory):
            require_whole_log(database)
        _, documents, waiting = check_database(database)
    except EdgeRagError as error:
        return Check("documents", Verdict.FAIL, str(error), "put a backup back with `edge-rag restore --replace`")
    detail = (
        f"{documents} documents, every page and index of {database.stat().st_size / 2**20:.1f} MiB as it was written"
    )
    return Check("documents", Verdict.OK, f"{detail}; {len(waiting)} wait to be stored")


def address_check(address: str) -> Check:
    """Checks that a daemon answers at an address, or that one could listen there."""
    try:
        with Client(address, timeout_s=_PROMPT_S) as client:
            report = client.status()
        return Check("daemon", Verdict.OK, f"{report.version} answers at {address}: {report.state.value}")
    except ClientError as error:
        if error.connected:
            return Check("daemon", Verdict.WARN, f"{address}: {error}", "see the daemon's log")
    if address.startswith("unix:"):
        return Check("daemon", Verdict.OK, f"none runs at {address}")
    host, _, port = address.rpartition(":")
    try:
        socket.create_server((host.strip("[]"), int(port)), family=_family(host)).close()
    except OSError as error:
        return Check(
            "daemon",
            Verdict.FAIL,
            f"{address} cannot be listened on: {error.strerror}",
            "end the program that holds the port, or choose another with --listen",
        )
    return Check("daemon", Verdict.OK, f"none runs; {address} is free (start one with `edge-rag serve`)")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _onnxruntime() -> Check:
    try:
        import edge_rag.runtime.session.sessions  # noqa: F401
    except ImportError as error:
        return Check("onnxruntime", Verdict.FAIL, f"cannot be imported: {error}", "install edge-rag again")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("onnxruntime", "onnxruntime-genai"))
    return Check("onnxruntime", Verdict.OK, versions)


def _faiss() -> Check:
    try:
        import faiss
    except ImportError as error:
        return Check("faiss", Verdict.FAIL, f"cannot be imported: {error}", "install edge-rag again")
    return Check("faiss", Verdict.OK, f"faiss-cpu {faiss.__version__}")


def _ops_library() -> Check:
    try:
        from edge_rag.runtime.session.ops_library import ops_library

        library = ops_library()
        ctypes.CDLL(str(library)).RegisterCustomOps  # noqa: B018
    except (ImportError, EdgeRagError, OSError, AttributeError) as error:
        return Check("ops", Verdict.FAIL, str(error), "install edge-rag again; a C++ compiler is needed")
    return Check("ops", Verdict.OK, str(library))


def _models(settings: Settings) -> Iterator[Check]:
    from edge_rag.model_store.roles import model_of, store_of
    from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder

    store = store_of(settings)
    for role in ModelRole:
        try:
            name = model_of(settings, store, role)
            if name is None:
                continue
            folder = store.find(name)
            manifest = verify_model_folder(folder, role)
        except EdgeRagError as error:
            yield Check(role.value, Verdict.FAIL, str(error), f"or name another with the key `models.{role.value}`")
        else:
            size = sum(record.bytes for record in manifest.files.values())
            detail = f"{manifest.name}, {size / 2**20:.1f} MiB, every hash as in its manifest ({folder})"
            yield Check(role.value, Verdict.OK, detail)
