"""Where a model is from, put into words that another machine can check."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edge_rag.model_store.copying import plain_files
from edge_rag.model_store.source import HubModel, Source


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
