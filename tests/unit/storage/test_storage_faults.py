"""A full disk, a damaged file and a crash in mid-ingest lose nothing that was acknowledged."""

import os
import random
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.storage.database import connect
from tests.unit.conftest import Opener

_ROUNDS = 200 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 10
_DELETED = -1
_REPOSITORY = Path(__file__).parents[3]
_INGEST_FOREVER = """
import sys
import threading
from pathlib import Path
from edge_rag.core.documents.document import Upload
from edge_rag.bootstrap.open_directory import OpenDirectory
from tests.unit.retriever.hashed_words import HashedWords

def acknowledge(name, version):
    sys.stdout.write(f"{name} {version}\\n")
    sys.stdout.flush()

library = OpenDirectory(Path(sys.argv[1]), HashedWords()).library
number = int(sys.argv[2])
while True:
    name = f"doc{number % 40}.txt"
    text = "".join(f"Sentence {part} of version{number} speaks of unique{number}. \\n\\n" * 20 for part in range(3))
    library.ingest(Upload.of_bytes("default", name, "", text.encode()))
    acknowledge(name, number)
    if number % 7 == 0:
        library.delete("default", name)
        acknowledge(name, -1)
    number += 1
"""


def documents_with(directory: OpenDirectory, word: str) -> set[str]:
    (found,) = directory.retriever.retrieve([RetrievalRequest(word, "default", 1000)])
    assert isinstance(found, Retrieved)
    return {
        hit.passage.document
        for hit in found.hits
        if hit.lexical_rank is not None and hit.dense_rank is not None and word in hit.passage.text
    }


@pytest.mark.soak
def test_a_killed_ingest_leaves_every_acknowledged_document_and_no_half_one(
    open_directory: Opener, tmp_path: Path
) -> None:
    draw = random.Random(20261121)
    acknowledged: dict[str, int] = {}
    number = 1
    for _ in range(_ROUNDS):
        seen = run_until_killed(tmp_path / "data", number, draw.randint(1, 15), draw.uniform(0, 0.03))
        last = max(version for _, version in seen)
        acknowledged.update(seen)
        directory = open_directory()
        require_consistent(directory, tmp_path / "data" / "documents.sqlite3")
        stored = {info.name for info in directory.documents.list("default", None, 1000)}
        for in_flight in (last, last + 1):
            acknowledged.pop(f"doc{in_flight % 40}.txt", None)
        for name, version in acknowledged.items():
            assert (name in stored) == (version != _DELETED), f"{name} was acknowledged as {version}"
            if version != _DELETED:
                assert documents_with(directory, f"unique{version}") == {name}
        directory.close()
        number = last + 2


def run_until_killed(data: Path, number: int, acknowledgements: int, delay: float) -> list[tuple[str, int]]:
    """Starts an ingesting process, kills it ``delay`` seconds after some acknowledgements, returns all it gave.

    The delay is there to have the kill hit any point of an ingest; nothing depends on which.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _INGEST_FOREVER, str(data), str(number)],
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    killer = threading.Timer(delay, process.kill)
    seen: list[tuple[str, int]] = []
    with process:
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            name, version = line.split()
            seen.append((name, int(version)))
            if len(seen) == acknowledgements:
                killer.start()
    return seen


def require_consistent(directory: OpenDirectory, database: Path) -> None:
    """Every document has all of its chunks, and full text and vectors agree with them."""
    for info in directory.documents.list("default", None, 1000):
        record, text = directory.documents.get("default", info.document_id)
        assert record.characters == len(text)
    require_whole_database(database)


def require_whole_database(database: Path) -> None:
    """SQLite's own checks hold, every document has all of its chunks, and full text agrees with them."""
    with closing(connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        counts = connection.execute(
            "SELECT d.chunks, count(k.chunk) FROM documents d LEFT JOIN chunks k USING (document) GROUP BY d.document"
        ).fetchall()
        assert all(expected == present for expected, present in counts)
        for (number,) in connection.execute("SELECT collection FROM collections").fetchall():
            table = f"fulltext_{number}"
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
