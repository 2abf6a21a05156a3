"""An index on disk: replaced whole or not at all, and believed only if its manifest vouches for every byte."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index file was made of.

    Attributes:
        embedder: Name of the model whose vectors it holds.
        dimension: Their length.
        generation: Generation of the collection it mirrors.
        count: Number of vectors.
    """

    embedder: str
    dimension: int
    generation: str
    count: int


class IndexFile:
    """One collection's index file and the manifest beside it."""

    def __init__(self, folder: Path, collection: int) -> None:
        self._content = folder / f"{collection}.faiss"
        self._manifest = folder / f"{collection}.json"

    def read(self, expected: IndexManifest) -> bytes | None:
        """Returns the stored bytes, or None where they are missing, damaged or of another state."""
        try:
            manifest = json.loads(self._manifest.read_bytes())
            content = self._content.read_bytes()
        except (OSError, ValueError):
            return None
        if manifest != {**asdict(expected), "sha256": hashlib.sha256(content).hexdigest()}:
            return None
        return content

    def write(self, content: bytes, manifest: IndexManifest) -> None:
        """Replaces the stored bytes; after a crash in between, ``read`` returns None.

        Raises:
            OSError: They could not be written; what was there before is unharmed.
        """
        described = {**asdict(manifest), "sha256": hashlib.sha256(content).hexdigest()}
        _replace(self._content, content)
        _replace(self._manifest, json.dumps(described, indent=1).encode())

    def delete(self) -> None:
        """Removes the file and its manifest."""
        self._manifest.unlink(missing_ok=True)
        self._content.unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(path.suffix + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
