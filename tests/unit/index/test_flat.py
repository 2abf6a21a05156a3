"""The FAISS index agrees with a plain computation, whatever is added and removed."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
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


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=40), st.integers(1, 10))
def test_search_finds_what_brute_force_finds(steps: list[tuple[bool, int]], limit: int) -> None:
    index = ExactIndex(_DIMENSION)
    present: set[int] = set()
    for adds, number in steps:
        if adds and number not in present:
            index.change((), ids([number]), stacked([number]))
            present.add(number)
        elif not adds:
            index.change(ids([number]), (), stacked([]))
            present.discard(number)
    restored = ExactIndex.deserialize(index.serialize(), _DIMENSION)
    assert restored is not None
    question = vector(1000)
    expected = sorted(present, key=lambda number: (-float(np.float32(vector(number) @ question)), number))[:limit]
    for searched in (index, restored):
        assert len(searched) == len(present)
        (found,) = searched.search(question[np.newaxis], limit, None)
        scores = [float(vector(number) @ question) for number in found]
        assert np.allclose(scores, [float(vector(number) @ question) for number in expected], atol=1e-6)
        assert len(found) == len(expected)


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
