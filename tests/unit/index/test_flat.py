"""The index that is searched exactly, stored and changed; its answers are in the contract of vector indexes."""

import threading

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.index.flat import ExactIndex

_DIMENSION = 4


def vector(number: int) -> NDArray[np.float32]:
    made = np.random.default_rng(number).standard_normal(_DIMENSION).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made), dtype=np.float32)


def stacked(numbers: list[int]) -> NDArray[np.float32]:
    return np.array([vector(number) for number in numbers], dtype=np.float32).reshape(-1, _DIMENSION)


def ids(numbers: list[int]) -> list[ChunkId]:
    return [ChunkId(number) for number in numbers]


def test_an_index_that_was_stored_finds_the_same() -> None:
    index = ExactIndex(_DIMENSION)
    index.change((), ids([*range(30)]), stacked([*range(30)]))
    index.change(ids([3, 9]), (), stacked([]))
    restored = ExactIndex.deserialize(index.serialize(), _DIMENSION)

    assert restored is not None
    assert len(restored) == 28
    for question in (vector(3), vector(4), vector(1000)):
        for limit in (1, 10, 28):
            found = index.search(question[np.newaxis], limit, None)
            assert restored.search(question[np.newaxis], limit, None) == found


def test_bytes_that_are_no_such_index_give_none() -> None:
    content = ExactIndex(_DIMENSION).serialize()

    assert ExactIndex.deserialize(b"", _DIMENSION) is None
    assert ExactIndex.deserialize(content[:10], _DIMENSION) is None
    assert ExactIndex.deserialize(content, _DIMENSION + 1) is None


def test_a_search_during_changes_sees_whole_changes_only() -> None:
    index = ExactIndex(_DIMENSION)
    index.change((), ids([0, 1]), stacked([5, 5]))
    wrong: list[tuple[ChunkId, ...]] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            (found,) = index.search(vector(5)[np.newaxis], 10, None)
            if len(found) != 2 or found[0] % 2 or found[1] != found[0] + 1:
                wrong.append(found)

    searcher = threading.Thread(target=search)
    searcher.start()
    for even in range(2, 2000, 2):
        index.change(ids([even - 2, even - 1]), ids([even, even + 1]), stacked([5, 5]))
    done.set()
    searcher.join()

    assert wrong == []
