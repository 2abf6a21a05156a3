"""Default paths of data, models and credentials."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import edge_rag

SERVICE_SOCKET: Final = Path("/run/edge-rag/edge-rag.sock")
"""Socket of the daemon that systemd starts."""

_SOCKET_NAME: Final = "edge-rag.sock"

_PATH_BYTES: Final = 107
"""Longest path of a Unix socket; see unix(7)."""


def default_data_directory() -> Path:
    """Returns systemd's state directory if there is one, else ``edge-rag`` in the user's data directory (XDG)."""
    state = os.environ.get("STATE_DIRECTORY")
    if state:
        return Path(state.split(":")[0])
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "edge-rag"


def default_models_directory() -> Path:
    """Returns the models of the checkout that the package runs from, else those installed with the package."""
    packages = [Path(path) for path in edge_rag.__path__]
    checkouts = [path.parent / "models" for path in packages if (path.parent / "pyproject.toml").is_file()]
    installed = [path / "models" for path in packages]
    for candidate in checkouts + installed:
        if candidate.is_dir():
            return candidate
    return installed[0]


def socket_path(data_directory: Path) -> Path | None:
    """Returns the Unix socket that the daemon of a data directory opens for the user it runs as.

    It lies in systemd's runtime directory if the process has one (``RuntimeDirectory=``), else in the data directory.
    If that path is too long, it lies in the user's runtime directory (XDG), under a name made of the data directory's;
    None if there is none.
    """
    runtime = os.environ.get("RUNTIME_DIRECTORY")
    if runtime:
        return Path(runtime.split(":")[0]) / _SOCKET_NAME
    path = data_directory / _SOCKET_NAME
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    user = os.environ.get("XDG_RUNTIME_DIR")
    if not user:
        return None
    name = hashlib.sha256(os.fsencode(data_directory)).hexdigest()[:16]
    path = Path(user) / f"edge-rag-{name}.sock"
    return path if len(os.fsencode(path)) <= _PATH_BYTES else None


def token_path(data_directory: Path) -> Path:
    """Returns the file of tokens."""
    return data_directory / "access" / "tokens.json"


def pairing_path(data_directory: Path) -> Path:
    """Returns the file of pairing codes."""
    return data_directory / "access" / "pairings.json"


def certificate_path(data_directory: Path) -> Path:
    """Returns the directory of the certificate authority and of the certificates that it signed."""
    return data_directory / "tls"


def credential(name: str) -> Path | None:
    """Returns the file of a credential that systemd passed to the service, or None.

    If it passed no credential at all, systemd 252 creates a directory that the service cannot read.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = None if not folder else Path(folder) / name
    return path if path is not None and os.access(path, os.R_OK) else None
