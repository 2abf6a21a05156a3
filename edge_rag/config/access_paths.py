"""Where credentials lie in a data directory when nothing says otherwise."""

from __future__ import annotations

import os
from pathlib import Path


def token_path(data_directory: Path) -> Path:
    """Returns the file of tokens."""
    return data_directory / "access" / "tokens.json"


def pairing_path(data_directory: Path) -> Path:
    """Returns the file of one-time codes."""
    return data_directory / "access" / "pairings.json"


def certificate_path(data_directory: Path) -> Path:
    """Returns the folder of the authority and the certificates it signed."""
    return data_directory / "tls"


def credential(name: str) -> Path | None:
    """Returns the file of a credential that systemd passed to the service; None where it passed none of that name.

    Where it passed none at all, systemd 252 leaves a folder that the service may not look into.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = None if not folder else Path(folder) / name
    return path if path is not None and os.access(path, os.R_OK) else None
