"""A checksum on every page of the database, checked whenever a page is read.

SQLite's own checksum VFS does it: eight bytes at the end of each page, written with the page and compared on every
read, in the database as in its log. So a byte that flips on the disk, wherever in text, vectors, full text or the trees
between them, is an error and never another answer. SQLite without it notices only what breaks the form of a tree.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import apsw
from apsw import sqlite_extra

RESERVED_BYTES: Final = 8
"""What the checksum takes of each page."""

_loading = threading.Lock()
_VFS: Final = "cksmvfs"


def load_page_checksums() -> None:
    """Puts the checksum VFS in front of the file system for all connections opened from now on; idempotent."""
    with _loading:
        if _VFS in apsw.vfs_names():
            return
        loader = apsw.Connection(":memory:")
        try:
            loader.enable_load_extension(True)
            loader.load_extension(sqlite_extra.path("cksumvfs"))
        finally:
            loader.close()


def reserve_checksums(connection: apsw.Connection) -> None:
    """Gives a database that has no page yet, or pages without checksums, room for them; older ones are rewritten.

    Rewriting is one transaction: interrupted, it never was. It takes as much memory as the database is large.
    """
    connection.reserve_bytes(reserve=RESERVED_BYTES)
    if connection.pragma("page_count"):
        # The VFS learns from the first page that there are checksums. What spilled from the cache would be written
        # before that page, and without any.
        connection.pragma("cache_spill", "OFF")
        connection.pragma("journal_mode", "DELETE")
        connection.execute("VACUUM")
        connection.pragma("cache_spill", "ON")


def vacuum_into(connection: apsw.Connection, path: Path) -> None:
    """Writes a compact copy of a database, of one moment, with a checksum on every page.

    What SQLite spills from its cache while it makes the copy is written before the first page, from which the VFS
    learns that there are checksums, and so has none. Hence every page is written through the VFS once more.

    Args:
        connection: The database; must have checksums.
        path: The copy; must not exist. Synced.

    Raises:
        apsw.Error: The copy could not be made.
        OSError: Likewise.
    """
    connection.execute("VACUUM INTO ?", (str(path),))
    page_bytes = connection.pragma("page_size")
    checked = apsw.VFSFile(_VFS, str(path), [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        with path.open("rb") as plain:
            at = 0
            while page := plain.read(page_bytes):
                checked.xWrite(page, at)
                at += len(page)
            os.fsync(plain.fileno())
    finally:
        checked.xClose()
