"""A bundle for somebody who helps with a box: numbers, states and versions; no texts, tokens or names.

It contains only values that are allowed; nothing is filtered out afterwards. A text gets in only from a field that is
listed here, whose values come from this program or from the hardware.
"""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from collections.abc import Iterator, Mapping, Set
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Final

import apsw
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

import edge_rag
from edge_rag.cli.health_checks import Check
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.monitoring.resources import MemoryItem, Temperature
from edge_rag.core.monitoring.status import DaemonStatus, DeviceUse, RemoteInUse, StageSnapshot
from edge_rag.core.placement import ProviderDevice
from edge_rag.device.facts import BoardFacts, Core, DriverFacts, ProcessorFacts, ThermalZone
from edge_rag.storage.backup import DATABASE
from edge_rag.storage.database import load_page_checksums

EVENTS: Final = 1000
"""Most audit events, the latest ones."""

_MOST_FILES: Final = 100_000

_TEXTS: Final[Mapping[type, Set[str]]] = {
    DaemonStatus: {"version", "profile"},
    StageSnapshot: {"name"},
    DeviceUse: {"name", "stages"},
    RemoteInUse: {"kind", "breaker", "uses"},
    Temperature: {"zone"},
    MemoryItem: {"name"},
    AuditEvent: {"reason"},  # of engine events only
    Core: {"governor"},
    ProcessorFacts: {"machine", "model", "features", "frequency_driver"},
    BoardFacts: {"model", "compatible", "jetson_release", "power_mode"},
    DriverFacts: {"without_driver", "libraries", "packages", "driver", "gpus", "built_for_cuda"},
    ThermalZone: {"name"},
    ProviderDevice: {"kind", "vendor"},
}
"""Fields whose texts come from this program or from the hardware."""

_KEYED: Final[Mapping[type, Set[str]]] = {AuditEvent: {"numbers"}, DriverFacts: {"libraries", "packages"}}
"""Mappings whose keys do, too; of others only the values are included."""

_NUMBERED: Final[Mapping[type, Mapping[str, str]]] = {
    AuditEvent: {"request_id": "request", "preempted_for": "request", "client": "client"},
    ClientUsage: {"client": "client"},
}
"""Fields whose values become ``client 1`` and so on, the same everywhere in a bundle."""

_ENGINE_EVENTS: Final = frozenset(AuditEventKind) - {
    AuditEventKind.CHANGED,
    AuditEventKind.REFUSED,
    AuditEventKind.FAILED,
    AuditEventKind.PLACED,
    AuditEventKind.SENT,
    AuditEventKind.HEDGED,
    AuditEventKind.TAKEN_OVER,
    AuditEventKind.BREAKER,
}
"""Events whose reasons name nobody and nothing."""

_LABELS: Final = frozenset(
    {"cause", "device", "kind", "le", "method", "outcome", "part", "quantile", "severity", "stage", "status", "target"}
    | {"used", "vectors", "wanted"}
)
"""Labels of metrics whose values come from this program."""

_LIBRARIES: Final = ("onnxruntime", "onnxruntime-genai", "faiss-cpu", "grpcio", "apsw", "numpy", "tokenizers")
_TABLES: Final = ("collections", "documents", "chunks", "jobs", "job_documents", "files")
_README: Final = """\
A bundle of `edge-rag support`, to look into what is wrong with a box.

It has numbers, states and versions: of the installation, the settings, the machine, the checks of `edge-rag doctor`,
the daemon's status, its metrics and its latest scheduling events, and of the sizes and counts of the stored data.

It has no text of questions, answers or documents, no names of documents, collections, clients, hosts or files, and no
tokens or addresses. Clients and requests are numbered. Text settings are shown as `set` or `default`. Lines of
the log are not in it, because they may name files: read `journalctl -u edge-rag` before you send that.
"""


class Redaction:
    """Makes JSON of values, without texts and names. Numbers of clients and requests are those of one bundle."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, object], int] = {}

    def plain(self, value: Any) -> Any:
        """Returns the allowed parts of a value: numbers, enums, times, and the texts of allowed fields."""
        if isinstance(value, Enum):
            return value.name.lower() if isinstance(value.value, tuple) else value.value
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, datetime):
            return value.isoformat()
        if is_dataclass(value) and not isinstance(value, type):
            return dict(self._members(value))
        if isinstance(value, Mapping):
            enums = all(isinstance(key, Enum) for key in value)
            kept = ((key, self.plain(each)) for key, each in value.items())
            return {str(key.value): each for key, each in kept} if enums else [each for _, each in kept]
        if isinstance(value, list | tuple | Set):
            return [self.plain(each) for each in value]
        return None

    def _members(self, value: Any) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        for each in fields(value):
            inner = getattr(value, each.name)
            if label := _NUMBERED.get(kind, {}).get(each.name):
                yield each.name, self._number(label, inner)
            elif each.name in _TEXTS.get(kind, ()) and not isinstance(inner, Mapping):
                yield each.name, sorted(inner) if isinstance(inner, Set) else inner
            elif each.name in _KEYED.get(kind, ()):
                yield each.name, dict(inner)
            elif isinstance(inner, Enum) or not isinstance(inner, str | Path):
                yield each.name, self.plain(inner)

    def _number(self, label: str, name: object) -> str | None:
        return f"{label} {self._numbers.setdefault((label, name), len(self._numbers) + 1)}" if name else None

    def event(self, entry: AuditEntry) -> Any:
        if entry.event.kind not in _ENGINE_EVENTS:
            entry = replace(entry, event=replace(entry.event, reason=""))
        return self.plain(entry)

    def metrics(self, text: str) -> list[dict[str, Any]]:
        """Returns the samples of Prometheus's text format."""
        return [
            {
                "name": sample.name,
                "labels": {
                    key: value if key in _LABELS else self._number(key, value) for key, value in sample.labels.items()
                },
                "value": sample.value,
            }
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(("edge_rag_", "process_", "python_gc_"))
        ]


def redacted_settings(settings: BaseModel) -> dict[str, Any]:
    """Returns settings: numbers, switches and choices as they are, all others as ``set`` or ``default``."""
    shown: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            shown[name] = redacted_settings(value)
        elif isinstance(value, bool | int | float):
            shown[name] = value
        elif isinstance(value, Enum):
            shown[name] = value.value
        else:
            shown[name] = "default" if value == field.get_default(call_default_factory=True) else "set"
    return shown


def installation() -> dict[str, Any]:
    """Returns versions of the program, its libraries and the system."""
    versions: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "edge_rag": edge_rag.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "kernel": platform.release().partition("-")[0],  # what follows may be named by who built it
        "libraries": versions,
    }


def stored_data(directory: Path) -> dict[str, Any]:
    """Returns schema version, number of rows, and number and size of files by kind; reads no content."""
    sizes: dict[str, dict[str, int]] = {}
    for entry in islice(sorted(directory.iterdir()) if directory.is_dir() else (), _MOST_FILES):
        known = entry.name if entry.name in _FOLDERS or entry.name.startswith(DATABASE) else "other"
        found = list(islice((each for each in entry.rglob("*") if each.is_file()), _MOST_FILES))
        counted = [entry] if entry.is_file() else found
        kind = sizes.setdefault(known, {"files": 0, "bytes": 0})
        kind["files"] += len(counted)
        kind["bytes"] += sum(each.lstat().st_size for each in counted)
    return {"files": sizes, "database": _rows(directory / DATABASE)}


_FOLDERS: Final = frozenset({"backups", "spool", "originals", "kv", "models", "indexes", "files", "compiled"})


def _rows(database: Path) -> dict[str, Any] | None:
    if not database.exists():
        return None
    load_page_checksums()
    rows: dict[str, int | None] = {}
    try:
        with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            for table in _TABLES:
                try:
                    rows[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                except apsw.SQLError:  # an older schema has no such table
                    rows[table] = None
            return {"schema": connection.pragma("user_version"), "rows": rows}
    except apsw.Error as error:
        return {"failed": type(error).__name__}


def check_result(check: Check) -> dict[str, str]:
    """Returns the result of a check of the doctor, without its words, which name files."""
    return {"name": check.name, "verdict": check.verdict.value}


def write_bundle(file: Path, parts: Mapping[str, Any]) -> int:
    """Writes a bundle, readable by its owner only; returns its size in bytes.

    Args:
        file: The file, which must not exist.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as target:
            with tarfile.open(fileobj=target, mode="w:gz") as archive:
                _add(archive, "README.txt", _README)
                for name, content in parts.items():
                    _add(archive, f"{name}.json", json.dumps(content, indent=1) + "\n")
            target.flush()
            os.fsync(target.fileno())
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return file.stat().st_size


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    header = tarfile.TarInfo(f"edge-rag-support/{name}")
    header.size, header.mode = len(content), 0o600
    header.mtime = int(datetime.now(UTC).timestamp())
    archive.addfile(header, io.BytesIO(content))
