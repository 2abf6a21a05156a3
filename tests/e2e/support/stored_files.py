"""What a data directory keeps."""

from collections.abc import Iterator
from pathlib import Path

import apsw


def stored_files(data_dir: Path, compact: Path) -> Iterator[Path]:
    """All files, but of the database only what its rows and trees hold.

    Unused parts of pages may have copies of moved rows, and the log what a reader kept from being carried over.
    """
    database = data_dir / "documents.sqlite3"
    compact.unlink(missing_ok=True)
    connection = apsw.Connection(str(database))
    try:
        connection.execute("VACUUM INTO ?", (str(compact),))
    finally:
        connection.close()
    yield compact
    yield from (file for file in data_dir.rglob("*") if file.is_file() and not file.name.startswith(database.name))
