"""Ranges of stored texts."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.storage.database import Database
from edge_rag.storage.texts import STEP, TextReader, character_offsets
from tests.unit.conftest import document_store, new_document

_LENGTH = 5 * STEP + 777
_READER = TextReader()
_TEXT = "".join("aé€😀"[number * number % 7 % 4] for number in range(_LENGTH))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("texts")
    with closing(Database(folder / "documents.sqlite3")) as opened:
        document_store(folder, opened).put(new_document("a", _TEXT))
        yield opened


@given(st.lists(st.text(), max_size=20), st.integers(1, 40))
def test_offsets_point_to_characters_wherever_blocks_are_cut(parts: list[str], block: int) -> None:
    text = "".join(part * 700 for part in parts)
    encoded = text.encode()

    found = character_offsets(encoded[first : first + block] for first in range(0, len(encoded), block))

    assert found == [len(text[:first].encode()) for first in range(0, len(text), STEP)]


@given(st.integers(0, _LENGTH + 9), st.none() | st.integers(0, _LENGTH + 9), st.none() | st.integers(4, 200_000))
def test_a_range_is_that_of_the_text_or_its_longest_beginning_that_fits(
    database: Database, start: int, end: int | None, most: int | None
) -> None:
    with database.snapshot() as connection:
        text = _READER.read(connection, 1, start, end, most)

    wanted = _TEXT[start:end]
    assert wanted.startswith(text)
    if text != wanted:
        assert most is not None
        assert most - 3 <= len(text.encode()) <= most
