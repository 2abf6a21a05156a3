"""Uses a library on a disk that is full to its last byte or read-only; run with a small file system at ROOT.

full_disk.py ROOT document|collection|read-only
"""

import errno
import os
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.errors import StorageError, StorageFull
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

_DOCUMENTS = 24
_BLOCK = bytes(4096)


def secret(number: int) -> str:
    return "wombat" + "abcdefghijklmnopqrstuvwxyz"[number] * 5


def text_of(number: int) -> str:
    lines = (f"Valve {part} of {secret(number)} is serviced in month {part % 12}." for part in range(400))
    return "\n\n".join(lines)


def fill(root: Path) -> None:
    with (root / "filler").open("ab", buffering=0) as filler:
        for size in (1 << 20, 4096, 512, 1):
            with suppress(OSError):
                while filler.write(bytes(size)) == size:
                    pass
    try:
        (root / "probe").write_bytes(_BLOCK)
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        raise AssertionError("the disk is not full")
    (root / "probe").unlink()


def require_gone(root: Path, numbers: range) -> None:
    for file in (file for file in root.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for number in numbers:
            assert secret(number).encode() not in content, f"{number} is still in {file.name}"


def delete_documents(root: Path, directory: OpenDirectory) -> None:
    for number in range(_DOCUMENTS):
        directory.library.delete("default", f"{number}.txt")
        fill(root)


def delete_collection(root: Path, directory: OpenDirectory) -> None:
    assert directory.library.delete_collection("default").documents == _DOCUMENTS


def remount(root: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(root)], check=True)


def open_read_only(root: Path) -> None:
    """A disk that the kernel has made read-only after an error: nothing starts on it, and nothing is lost."""
    with closing(OpenDirectory(root, HashedWords())) as directory:
        ingest(directory, "0.txt", text_of(0))
    remount(root, "ro")
    try:
        OpenDirectory(root, HashedWords())
    except StorageError as error:
        assert "Read-only file system" in str(error), error
    else:
        raise AssertionError("a library was opened on a read-only disk")
    remount(root, "rw")
    with closing(OpenDirectory(root, HashedWords())) as directory:
        assert directory.damage is None
        assert directory.documents.get("default", "0.txt")[1] == text_of(0)


def main(root: Path, what: str) -> None:
    if what == "read-only":
        open_read_only(root)
        return
    with closing(OpenDirectory(root, HashedWords())) as directory:
        for number in range(_DOCUMENTS):
            ingest(directory, f"{number}.txt", text_of(number))
        fill(root)
        try:
            ingest(directory, "more.txt", text_of(_DOCUMENTS))
        except StorageFull:
            pass
        else:
            raise AssertionError("a document found room on a full disk")

        (delete_documents if what == "document" else delete_collection)(root, directory)

        assert directory.documents.document_counts() == {}
        require_gone(root, range(_DOCUMENTS))
        (root / "filler").unlink()
        ingest(directory, "more.txt", text_of(_DOCUMENTS))
        assert (root / "reserve").stat().st_size >= 1 << 20


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
    os._exit(0)
