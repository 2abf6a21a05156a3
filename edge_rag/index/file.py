"""An index on disk: replaced whole or not at all, and believed only if its manifest vouches for every byte.

The content is written to a file with another ending, synced and renamed, then the manifest with the content's SHA-256,
the same way; the folder is synced after each rename. A crash at any point leaves the old pair, the new pair, or a
manifest that does not fit its content, which is as good as none. Nothing parses content that was not vouched for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What the file of an exact index was made of.

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


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """What the file of a segment was made of.

    Attributes:
        embedder: Name of the model whose vectors it holds.
        dimension: Their length.
        segment: Random name of the segment, which the database knows it by.
    """

    embedder: str
    dimension: int
    segment: str


Manifest = IndexManifest | SegmentManifest


class HashedFile:
    """A file being written, whose SHA-256 is taken on the way.

    Attributes:
        path: Where it lies while it is written.
        sha256: Digest of what was written so far.
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
        """Has what was written seen by those who open the path."""
        self._file.flush()


class IndexFile:
    """A file of an index and the manifest beside it."""

    def __init__(self, folder: Path, collection: int, segment: str = "") -> None:
        """Names the pair: ``3.faiss`` and ``3.json`` of collection 3, ``3.SEGMENT.faiss`` and so on of a segment."""
        name = f"{collection}.{segment}" if segment else f"{collection}"
        self.content = folder / f"{name}.faiss"
        self.manifest = folder / f"{name}.json"

    def read(self, expected: Manifest) -> bytes | None:
        """Returns the stored bytes, or None where they are missing, damaged or of another state."""
        try:
            content = self.content.read_bytes()
        except OSError:
            return None
        return content if self._vouches(hashlib.sha256(content).hexdigest(), expected) else None

    def verify(self, expected: Manifest) -> bool:
        """Returns whether the stored bytes are what the manifest says, reading them once in constant memory."""
        try:
            with self.content.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return False
        return self._vouches(sha256, expected)

    def write(self, content: bytes, manifest: Manifest) -> None:
        """Replaces the stored bytes; after a crash in between, ``read`` returns None.

        Raises:
            OSError: They could not be written; what was there before is unharmed.
        """
        with self.writing(manifest) as file:
            file.write(content)

    @contextmanager
    def writing(self, manifest: Manifest) -> Iterator[HashedFile]:
        """Lends a file to write the new bytes to, once and in order; on leaving they replace the stored ones.

        Raises:
            OSError: They could not be written; what was there before is unharmed.
        """
        with _replacing(self.content) as file:
            hashed = HashedFile(file, Path(file.name))
            yield hashed
        described = {**asdict(manifest), "sha256": hashed.sha256.hexdigest()}
        with _replacing(self.manifest) as file:
            file.write(json.dumps(described, indent=1).encode())

    def delete(self) -> None:
        """Removes the file and its manifest."""
        self.manifest.unlink(missing_ok=True)
        self.content.unlink(missing_ok=True)

    def _vouches(self, sha256: str, expected: Manifest) -> bool:
        try:
            manifest = json.loads(self.manifest.read_bytes())
        except (OSError, ValueError):
            return False
        return bool(manifest == {**asdict(expected), "sha256": sha256})


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
