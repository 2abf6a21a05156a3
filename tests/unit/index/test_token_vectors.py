"""Token vectors are a cache: what it returns is what was kept, and whatever happens to its file costs no answer."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.index.token_vectors import TokenVectorFile, default_budget
from edge_rag.runtime.encoder.text_encoder import TokenVectors, pack, unpack
from edge_rag.storage.backup import TOKEN_VECTORS

DIMENSION = 64
ROOM = 1 << 20


class LetterEncoder:
    """A vector for each letter of a text."""

    name, dimension, max_tokens = "letters", DIMENSION, 100_000

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), DIMENSION), np.float32)

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(questions)

    def embed_passages(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[bytes]]:
        return self.embed(texts), [pack(vectors_of(text)) for text in texts]


class OtherEncoder(LetterEncoder):
    name = "other letters"


def vectors_of(text: str) -> TokenVectors:
    rows = np.array([np.random.default_rng(ord(letter)).standard_normal(DIMENSION) for letter in text], np.float32)
    rows = rows.reshape(len(text), DIMENSION)
    places = np.array([(place, place + 1) for place in range(len(text))], np.int32).reshape(-1, 2)
    return TokenVectors(rows / np.linalg.norm(rows, axis=1, keepdims=True), places)


def passage(chunk: int, text: str) -> Passage:
    return Passage(ChunkId(chunk), DocumentId("d"), "d.txt", None, 0, len(text), text)


def everything(chunks: Sequence[ChunkId]) -> set[ChunkId]:
    return set(chunks)


def opened(folder: Path, budget: int = ROOM, encoder: LetterEncoder | None = None) -> TokenVectorFile:
    return TokenVectorFile(folder, encoder or LetterEncoder(), budget, everything)


def ingest(file: TokenVectorFile, texts: Sequence[str], first: int = 1) -> list[Passage]:
    chunks = [ChunkId(first + number) for number in range(len(texts))]
    with file.ingesting() as document:
        document.embed(texts)
        document.keep(chunks, texts)
    return [passage(chunk, text) for chunk, text in zip(chunks, texts, strict=True)]


def held(file: TokenVectorFile, passages: Sequence[Passage]) -> list[bool]:
    found = file.read(passages)
    for each, vectors in zip(passages, found, strict=True):
        if vectors is not None:
            expected = unpack(pack(vectors_of(each.text)))
            np.testing.assert_array_equal(vectors.vectors, expected.vectors)
            np.testing.assert_array_equal(vectors.offsets, expected.offsets)
    return [vectors is not None for vectors in found]


def test_what_ingest_computed_is_read_also_after_a_restart(tmp_path: Path) -> None:
    file = opened(tmp_path)
    passages = ingest(file, ["pump", "valve", "pump", ""])
    assert held(file, passages) == [True] * 4
    file.close()
    assert held(opened(tmp_path), passages) == [True] * 4


def test_another_text_of_the_same_chunk_is_not_kept(tmp_path: Path) -> None:
    file = opened(tmp_path)
    ingest(file, ["pump"])
    assert held(file, [passage(1, "pumps"), passage(2, "pump")]) == [False, False]


def test_a_document_that_was_not_stored_leaves_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path)
    empty = file.use().used_bytes
    with file.ingesting() as document:
        document.embed(["pump" * 500])
        assert file.use().used_bytes > empty
    assert file.use().used_bytes == empty
    assert file.use().passages == 0


def test_texts_embedded_elsewhere_are_left_out(tmp_path: Path) -> None:
    file = opened(tmp_path)
    with file.ingesting() as document:
        document.embed(["here"])
        document.keep([ChunkId(1), ChunkId(2)], ["there", "here"])
    assert held(file, [passage(1, "there"), passage(2, "here")]) == [False, True]


def test_removed_chunks_are_gone_and_their_bytes_with_them(tmp_path: Path) -> None:
    file = opened(tmp_path)
    removed, kept = ingest(file, ["removed" * 50, "kept"])
    trace = pack(vectors_of(removed.text))[-200:]
    assert trace in on_disk(tmp_path)
    file.remove([removed.chunk_id])
    assert held(file, [removed, kept]) == [False, True]
    assert trace not in on_disk(tmp_path)


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_chunks_that_are_no_longer_stored_are_forgotten_at_the_next_start(tmp_path: Path) -> None:
    file = opened(tmp_path)
    gone, kept = ingest(file, ["gone", "kept"])
    file.close()
    again = TokenVectorFile(tmp_path, LetterEncoder(), ROOM, lambda chunks: set(chunks) - {gone.chunk_id})
    assert held(again, [gone, kept]) == [False, True]


def test_a_passage_that_was_removed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    file = TokenVectorFile(tmp_path, LetterEncoder(), ROOM, lambda chunks: set())
    file.write([passage(1, "pump")], [unpack(pack(vectors_of("pump")))])
    assert held(file, [passage(1, "pump")]) == [False]


def test_the_file_stays_within_its_budget_and_ingest_evicts_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path, 400 << 10)
    texts = [f"{number:03d}" * 60 for number in range(100)]
    passages = [ingest(file, [text], number + 1)[0] for number, text in enumerate(texts)]
    assert file.use().used_bytes <= file.use().budget_bytes
    kept = held(file, passages)
    assert 0 < sum(kept) < len(kept)
    assert kept == sorted(kept, reverse=True)


def test_what_is_asked_for_stays_and_takes_the_place_of_what_is_not(tmp_path: Path) -> None:
    file = opened(tmp_path, 400 << 10)
    first = [f"{number:03d}" * 60 for number in range(100)]
    passages = [each for each in ingest_singly(file, first) if each in file]
    asked, others = passages[:8], passages[8:]
    for _ in range(3):
        held(file, asked)
    new = [passage(1000 + number, f"new{number:03d}" * 30) for number in range(len(others) // 2)]
    for each in new:
        file.write([each], [unpack(pack(vectors_of(each.text)))])
    assert all(held(file, asked))
    assert all(held(file, new))
    assert not all(held(file, others))
    assert file.use().used_bytes <= file.use().budget_bytes
    file.close()
    assert all(held(opened(tmp_path, 400 << 10), [*asked, *new]))


def ingest_singly(file: TokenVectorFile, texts: Sequence[str]) -> list[Passage]:
    return [ingest(file, [text], number + 1)[0] for number, text in enumerate(texts)]


def test_a_smaller_budget_shrinks_the_file_at_the_next_start_and_none_removes_it(tmp_path: Path) -> None:
    file = opened(tmp_path)
    ingest_singly(file, ["x" * 300] * 40)
    file.close()
    smaller = opened(tmp_path, 300 << 10)
    assert (tmp_path / TOKEN_VECTORS).stat().st_size <= 300 << 10
    assert smaller.use().passages > 0
    smaller.close()
    none = opened(tmp_path, 0)
    assert held(none, [passage(1, "x" * 300)]) == [False]
    assert list(tmp_path.iterdir()) == []
    assert 0 < default_budget(tmp_path / "missing") <= 1 << 30


def test_vectors_of_another_encoder_are_not_used(tmp_path: Path) -> None:
    file = opened(tmp_path)
    passages = ingest(file, ["pump"])
    file.close()
    other = opened(tmp_path, encoder=OtherEncoder())
    assert held(other, passages) == [False]
    assert other.use().passages == 0


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_something_else_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TOKEN_VECTORS).write_bytes(content)
    file = opened(tmp_path)
    assert held(file, ingest(file, ["pump"])) == [True]


def test_a_database_of_another_schema_is_replaced(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / TOKEN_VECTORS) as connection:
        connection.execute("CREATE TABLE passages (id INTEGER PRIMARY KEY, chunk, text, asked, vectors)")
        connection.execute("CREATE TRIGGER t AFTER INSERT ON passages BEGIN DELETE FROM passages; END")
    connection.close()
    file = opened(tmp_path)
    assert held(file, ingest(file, ["pump"])) == [True]


def test_no_flipped_byte_gives_other_vectors(tmp_path: Path) -> None:
    file = opened(tmp_path)
    passages = ingest(file, [letter * 90 for letter in "abcdef"])
    file.close()
    whole = (tmp_path / TOKEN_VECTORS).read_bytes()
    for at in range(7, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        (tmp_path / TOKEN_VECTORS).write_bytes(damaged)
        again = opened(tmp_path)
        held(again, passages)
        # Whichever finds the damage is lost with the file, and the next one is kept.
        found = [held(again, ingest(again, [text], number)) for number, text in enumerate(["a", "b", "c"], start=50)]
        assert found[-1] == [True], at
        again.close()


def test_a_row_with_the_vectors_of_another_text_is_not_used(tmp_path: Path) -> None:
    file = opened(tmp_path)
    passages = ingest(file, ["pump", "line"])
    file.close()
    connection = apsw.Connection(str(tmp_path / TOKEN_VECTORS))
    connection.execute("UPDATE vectors SET packed = (SELECT packed FROM vectors WHERE id = 1) WHERE id = 2")
    connection.close()
    again = opened(tmp_path)
    assert held(again, passages) == [True, False]
    again.close()
    assert held(opened(tmp_path), passages) == [True, False]


def test_a_full_disk_keeps_nothing_and_fails_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path)

    def full(*arguments: object) -> int:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr("edge_rag.index.token_vectors._insert", full)
    assert held(file, ingest(file, ["pump"])) == [False]
    monkeypatch.undo()
    assert held(file, ingest(file, ["pump"])) == [True]


def test_a_folder_in_the_place_of_the_file_turns_it_off(tmp_path: Path) -> None:
    (tmp_path / TOKEN_VECTORS).mkdir()
    file = opened(tmp_path)
    assert held(file, ingest(file, ["pump"])) == [False]
    file.close()


def test_questions_read_while_documents_come_and_go(tmp_path: Path) -> None:
    file = opened(tmp_path, 300 << 10)
    kept = ingest(file, ["always" * 5, "here" * 9])
    over = threading.Event()
    seen: list[bool] = []

    def ask() -> None:
        while not over.is_set():
            seen.extend(held(file, kept))

    reader = threading.Thread(target=ask)
    reader.start()
    try:
        for number in range(60):
            other = ingest(file, [f"{number}" * 100] * 4, 10 + 4 * number)
            file.remove([each.chunk_id for each in other])
    finally:
        over.set()
        reader.join()
    assert seen
    assert all(seen)


_KILLED = """
import sys
from pathlib import Path
from tests.unit.index.test_token_vectors import ingest, opened
file = opened(Path(sys.argv[1]), 64 << 20)
number = 0
while True:
    with file.ingesting() as document:
        texts = [f"{number}-{each}" * 20 for each in range(8)]
        document.embed(texts)
        document.keep(range(number * 8 + 1, number * 8 + 9), texts)
    print(number, flush=True)
    number += 1
"""


def test_a_killed_process_leaves_a_file_that_is_right(tmp_path: Path) -> None:
    for rounds in (1, 3, 7):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        ) as process:
            assert process.stdout is not None
            done = [process.stdout.readline() for _ in range(rounds)]
            os.kill(process.pid, signal.SIGKILL)
        assert len(done) == rounds
        file = opened(tmp_path, 64 << 20)
        texts = [(f"{number}-{each}" * 20) for number in range(rounds) for each in range(8)]
        assert all(held(file, [passage(chunk, text) for chunk, text in enumerate(texts, start=1)]))
        file.remove(range(1, 10_000))  # type: ignore[arg-type]
        assert file.use().passages == 0
        file.close()
