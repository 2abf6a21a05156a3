"""A document that is a ZIP file of parts, opened without trusting what it says about itself."""

from __future__ import annotations

import io
import lzma
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from edge_rag.errors import BrokenDocument, DocumentTooLarge, EncryptedDocument

_MAX_PARTS = 20_000
_PIECE_BYTES = 1 << 16
_ENCRYPTED_FLAG = 0x1
DAMAGED_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    struct.error,
)
"""What reading a damaged ZIP file raises."""


class Container:
    """The parts of a document by name. Nothing is ever unpacked to disk, and parts in parts are left alone.

    What the parts read so far hold together is counted as it is unpacked, so that a part that says it is small and is
    not costs no more than the limit.

    Raises:
        BrokenDocument: It is no ZIP file, or a damaged one.
        DocumentTooLarge: It has more parts than any document has.
    """

    def __init__(self, content: bytes, max_unpacked_bytes: int) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except DAMAGED_ZIP as error:
            raise BrokenDocument("it is damaged: its ZIP container cannot be opened") from error
        self._parts = {info.filename.lstrip("/"): info for info in self._archive.infolist()}
        if len(self._parts) > _MAX_PARTS:
            raise DocumentTooLarge(f"it has {len(self._parts):,} parts, at most {_MAX_PARTS:,} are taken")
        self._allowed = max_unpacked_bytes
        self._left = max_unpacked_bytes

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parts, in the file's order."""
        return tuple(self._parts)

    def read(self, name: str) -> bytes:
        """Returns a part.

        Raises:
            BrokenDocument: It is missing or damaged.
            EncryptedDocument: It needs a password.
            DocumentTooLarge: It holds more than is left of what may be unpacked.
        """
        with self.open(name) as part:
            return part.read()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a part; reading it raises what ``read`` raises."""
        info = self._parts.get(name)
        if info is None:
            raise BrokenDocument(f"its part {name!r} is missing")
        if info.flag_bits & _ENCRYPTED_FLAG:
            raise EncryptedDocument("it is encrypted and needs a password; save a copy without one")
        try:
            with self._archive.open(info) as part:
                yield io.BufferedReader(_Counted(part, self._count), _PIECE_BYTES)
        except DAMAGED_ZIP as error:
            raise BrokenDocument(f"its part {name!r} is damaged") from error

    def check_unpacked_size(self) -> None:
        """Unpacks every part once, keeping nothing: for a reader that does not count itself.

        Raises:
            BrokenDocument, EncryptedDocument, DocumentTooLarge: As ``read``.
        """
        for name, info in self._parts.items():
            if not info.is_dir():
                with self.open(name) as part:
                    while part.read(_PIECE_BYTES):
                        pass

    def _count(self, read: int) -> None:
        self._left -= read
        if self._left < 0:
            raise DocumentTooLarge(f"it unpacks to more than {self._allowed // 2**20:,} MiB")


class _Counted(io.RawIOBase):
    def __init__(self, part: IO[bytes], count: Callable[[int], None]) -> None:
        self._part = part
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._part.read(min(len(buffer), _PIECE_BYTES))
        self._count(len(piece))
        buffer[: len(piece)] = piece
        return len(piece)


def resolve(base: str, reference: str) -> str:
    """Name of the part that ``reference``, found in part ``base``, points to; never outside of the container."""
    reference = reference.partition("#")[0]
    joined = reference if reference.startswith("/") else posixpath.join(posixpath.dirname(base), reference)
    return posixpath.normpath("/" + joined).lstrip("/")
