"""Where credentials lie in a data directory when nothing says otherwise."""

from __future__ import annotations

from pathlib import Path


def token_path(data_directory: Path) -> Path:
    """Returns the file of tokens."""
    return data_directory / "access" / "tokens.json"


def certificate_path(data_directory: Path) -> Path:
    """Returns the folder of the authority and the certificates it signed."""
    return data_directory / "tls"
