"""Where things are when nothing says otherwise.

Where credentials lie in a data directory when nothing says otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path

import edge_rag


def default_data_directory() -> Path:
    """Returns systemd's state directory if there is one, else ``edge-rag`` in the user's data directory (XDG)."""
    state = os.environ.get("STATE_DIRECTORY")
    if state:
        return Path(state.split(":")[0])
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "edge-rag"


def default_models_directory() -> Path:
    """Returns the models of the checkout the package is run from, else those that were installed with it."""
    places = [Path(place) for place in edge_rag.__path__]
    checkouts = [place.parent / "models" for place in places if (place.parent / "pyproject.toml").is_file()]
    installed = [place / "models" for place in places]
    for candidate in checkouts + installed:
        if candidate.is_dir():
            return candidate
    return installed[0]


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
