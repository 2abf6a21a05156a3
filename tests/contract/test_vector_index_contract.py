"""What every ``VectorIndex`` promises the retriever."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_rag.core.ids import ChunkId
from edge_rag.index.file import IndexFile, SegmentManifest
from edge_rag.index.flat import ExactIndex
from edge_rag.index.ivf_build import RecallTarget, build_segment
from edge_rag.index.ivf_segment import Segment
from edge_rag.index.layered import LayeredIndex
from edge_rag.index.ports import VectorIndex
from edge_rag.storage.vectors import CollectionVectors

_DIMENSION = 16
_TOLERANCE = 0.02
"""How far a score may be off in an index that stores vectors in fewer bits; random directions differ by much more."""

Maker = Callable[[], VectorIndex]


class RebuiltIndex:
    """A layered index that gets a new segment now and then, so that what is asked for is in all layers."""

    def __init__(self) -> None:
        self._index = LayeredIndex(ExactIndex(_DIMENSION))
        self._stored: dict[int, NDArray[np.float32]] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._index)

    def change(
        self, removed: Sequence[ChunkId], added: Sequence[ChunkId] | NDArray[np.int64], vectors: NDArray[np.float32]
    ) -> None:
        self._index.change(removed, added, vectors)
        for number in removed:
            self._stored.pop(int(number), None)
        self._stored.update(zip(map(int, added), vectors, strict=True))
        self._changes += 1
        if self._stored and (len(added) > 10 or self._changes % 8 == 0):
            self._index.rebase(self._segment(), ExactIndex(_DIMENSION))

    def search(
        self, questions: NDArray[np.float32], limit: int, within: NDArray[np.int64] | None
    ) -> list[tuple[ChunkId, ...]]:
        return self._index.search(questions, limit, within)

    def ids(self) -> NDArray[np.int64]:
        return np.array(sorted(self._stored), dtype=np.int64)

    def fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.array([self._stored[number] for number in ids.tolist()], dtype=np.float32)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        for first in range(0, len(self._stored), 700):
            some = self.ids()[first : first + 700]
            yield some, self.fetch(some)

    def _segment(self) -> Segment:
        with tempfile.TemporaryDirectory() as folder:
            file = IndexFile(Path(folder), 1, "segment")
            manifest = SegmentManifest("vectors", _DIMENSION, "segment")
            build_segment(cast(CollectionVectors, self), file, manifest, RecallTarget(), lambda done: None)
            assert file.verify(manifest)
            return Segment.open(file.content, _DIMENSION)


@pytest.fixture(params=["exact", "layered", "milvus"], scope="module")
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """Makes an index that holds nothing; the one made before it may not be used any more."""
    match request.param:
        case "exact":
            yield lambda: ExactIndex(_DIMENSION)
        case "layered":
            yield RebuiltIndex
        case _:
            pytest.importorskip("pymilvus", reason="needs the extra milvus")
            pytest.importorskip("milvus_lite", reason="needs the extra milvus")
            from edge_rag.index.milvus import Milvus, MilvusIndex

            milvus = Milvus(str(tmp_path_factory.mktemp("milvus") / "milvus.db"), "", 30)

            def emptied() -> VectorIndex:
                index = MilvusIndex(milvus, "contract", _DIMENSION)
                index.drop()
                index.create()
                return index

            yield emptied
            milvus.close()


def vector(number: int) -> NDArray[np.float32]:
    made = np.random.default_rng(number).standard_normal(_DIMENSION).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made), dtype=np.float32)


def stacked(numbers: list[int]) -> NDArray[np.float32]:
    return np.array([vector(number) for number in numbers], dtype=np.float32).reshape(-1, _DIMENSION)


def ids(numbers: list[int]) -> list[ChunkId]:
    return [ChunkId(number) for number in numbers]


def allowed(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(sorted(set(numbers)), dtype=np.int64)


def filled(make: Maker, count: int) -> VectorIndex:
    index = make()
    numbers = list(range(1, count + 1))
    index.change((), ids(numbers), stacked(numbers))
    return index


def require_best(found: tuple[ChunkId, ...], present: set[int], question: NDArray[np.float32], limit: int) -> None:
    scores = {number: float(vector(number) @ question) for number in present}
    expected = sorted(scores.values(), reverse=True)[:limit]
    assert len(set(found)) == len(found) == len(expected)
    assert set(found) <= present
    assert [scores[number] for number in found] == pytest.approx(expected, abs=_TOLERANCE)


@settings(deadline=None, max_examples=12)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=30),
    limit=st.integers(1, 10),
    within=st.none() | st.lists(st.integers(1, 40), max_size=20),
)
def test_a_search_finds_the_best_of_what_is_there_and_allowed(
    make: Maker, steps: list[tuple[bool, int]], limit: int, within: list[int] | None
) -> None:
    index = make()
    present: set[int] = set()
    for adds, number in steps:
        if adds and number not in present:
            index.change((), ids([number]), stacked([number]))
            present.add(number)
        elif not adds:
            index.change(ids([number]), (), stacked([]))
            present.discard(number)

    question = vector(1000)
    (found,) = index.search(question[np.newaxis], limit, None if within is None else allowed(within))

    assert len(index) == len(present)
    require_best(found, present if within is None else present & set(within), question, limit)


def test_an_index_that_holds_nothing_finds_nothing(make: Maker) -> None:
    assert make().search(stacked([1, 2]), 5, None) == [(), ()]


def test_nothing_allowed_is_nothing_found(make: Maker) -> None:
    assert filled(make, 20).search(stacked([1, 2]), 5, allowed([])) == [(), ()]


@pytest.mark.parametrize("share", [2, 10, 100, 500])
def test_a_restricted_search_returns_as_many_as_the_limit(make: Maker, share: int) -> None:
    index = filled(make, 2000)
    some = list(range(share, 2001, share))

    for question in stacked([3001, 3002, 3003]):
        (found,) = index.search(question[np.newaxis], 10, allowed(some))
        require_best(found, set(some), question, 10)


def test_more_than_there_are_gives_all_there_are(make: Maker) -> None:
    (found,) = filled(make, 50).search(stacked([7]), 1000, None)

    assert sorted(found) == list(range(1, 51))
    assert found[0] == 7


def test_each_question_of_a_batch_gets_its_own_answer(make: Maker) -> None:
    index = filled(make, 100)
    questions = stacked([3, 50, 2000])

    assert index.search(questions, 5, None) == [
        index.search(question[np.newaxis], 5, None)[0] for question in questions
    ]


def test_equal_vectors_come_in_order_of_id(make: Maker) -> None:
    index = make()
    index.change((), ids([9, 3, 7]), stacked([1, 1, 1]))

    assert index.search(stacked([1]), 3, None) == [(3, 7, 9)]


def test_what_was_removed_is_not_found_even_where_it_is_allowed(make: Maker) -> None:
    index = filled(make, 30)
    index.change(ids([4, 5]), (), stacked([]))

    (found,) = index.search(stacked([4]), 30, allowed([4, 5, 6]))

    assert found == (6,)
    assert len(index) == 28


def test_one_change_replaces_vectors(make: Maker) -> None:
    index = filled(make, 30)
    index.change(ids([4, 5]), ids([101, 102]), stacked([4, 900]))

    assert index.search(stacked([4]), 1, None) == [(101,)]
    assert len(index) == 30


def test_removing_what_is_not_there_changes_nothing(make: Maker) -> None:
    index = filled(make, 10)
    index.change(ids([99]), (), stacked([]))

    assert len(index) == 10


def test_ids_are_63_bits_wide(make: Maker) -> None:
    index = make()
    large = 2**63 - 1
    index.change((), ids([large]), stacked([1]))

    assert index.search(stacked([1]), 1, allowed([1, large])) == [(large,)]
