"""An index file and its manifest, replaced atomically and verified before use.

The content is written to a temporary file, synced and renamed, then the manifest with the content's SHA-256 in the same
way; the folder is synced after each rename. A crash at any point leaves the old pair, the new pair, or a manifest that
does not match its content, which counts as missing. Content without a matching manifest is never parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from edge_rag.core.atomic_file import new_file, replace_file


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The source of an exact index."""

    embedder: str
    dimension: int
    generation: str
    count: int


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """The source of a segment."""

    embedder: str
    dimension: int
    segment: str


Manifest = IndexManifest | SegmentManifest


class HashedFile:
    """A file being written, with the SHA-256 of its content.

    Attributes:
        sha256: Digest of the bytes written so far.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self.path = path
        self.sha256 = hashlib.sha256()

    def write(self, content: bytes) -> None:
        """Appends bytes."""
        self.sha256.update(content)
        self._file.write(content)

    def flush(self) -> None:
        """Makes the bytes written visible to readers of the path."""
        self._file.flush()


class IndexFile:
    """A file of an index and the manifest beside it."""

    def __init__(self, folder: Path, collection: int, segment: str = "") -> None:
        """Names the pair: ``3.faiss`` and ``3.json`` for collection 3, ``3.SEGMENT.faiss`` and so on for a segment."""
        name = f"{collection}.{segment}" if segment else f"{collection}"
        self.content = folder / f"{name}.faiss"
        self.manifest = folder / f"{name}.json"

    def read(self, expected: Manifest) -> bytes | None:
        """Returns the stored bytes, or None if they are missing, damaged or of another state."""
        try:
            content = self.content.read_bytes()
        except OSError:
            return None
        return content if self._matches(hashlib.sha256(content).hexdigest(), expected) else None

    def verify(self, expected: Manifest) -> bool:
        """Whether the stored bytes match the manifest; reads them once in constant memory."""
        try:
            with self.content.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return False
        return self._matches(sha256, expected)

    def write(self, content: bytes, manifest: Manifest) -> None:
        """Replaces the stored bytes; after a crash in between, ``read`` returns None."""
        with self.writing(manifest) as file:
            file.write(content)

    @contextmanager
    def writing(self, manifest: Manifest) -> Iterator[HashedFile]:
        """Yields a file to write the new bytes to, once and in order; after the block they replace the stored ones."""
        with new_file(self.content, 0o600) as file:
            hashed = HashedFile(file, Path(file.name))
            yield hashed
        described = {**asdict(manifest), "sha256": hashed.sha256.hexdigest()}
        replace_file(self.manifest, json.dumps(described, indent=1).encode(), 0o600)

    def delete(self) -> None:
        self.manifest.unlink(missing_ok=True)
        self.content.unlink(missing_ok=True)

    def _matches(self, sha256: str, expected: Manifest) -> bool:
        try:
            manifest = json.loads(self.manifest.read_bytes())
        except (OSError, ValueError):
            return False
        return bool(manifest == {**asdict(expected), "sha256": sha256})
