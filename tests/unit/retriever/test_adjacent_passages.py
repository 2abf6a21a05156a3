from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.retriever.passages import merge_adjacent


@dataclass(frozen=True)
class Chunk:
    section: str
    ordinal: int


def merged(items: Sequence[Chunk], most: int = 100) -> list[list[int]]:
    runs = merge_adjacent(items, lambda run: len(run) <= most)
    return [[item.ordinal for item in run.items] for run in runs]


def of(*ordinals: int, section: str = "a") -> list[Chunk]:
    return [Chunk(section, ordinal) for ordinal in ordinals]


def test_adjacent_passages_are_merged_in_text_order_at_the_rank_of_the_best() -> None:
    assert merged(of(7, 3, 9, 4, 2)) == [[7], [2, 3, 4], [9]]


def test_a_chunk_between_two_runs_joins_them() -> None:
    assert merged(of(1, 3, 2)) == [[1, 2, 3]]


def test_sections_stay_apart() -> None:
    assert merged([*of(1), *of(2, section="b")]) == [[1], [2]]


def test_a_run_grows_only_as_far_as_it_fits() -> None:
    assert merged(of(1, 2, 3), most=2) == [[1, 2], [3]]
    assert merged(of(1, 3, 2), most=2) == [[1, 2], [3]]


@given(st.lists(st.builds(Chunk, st.sampled_from("ab"), st.integers(0, 12)), unique=True), st.integers(1, 5))
def test_every_chunk_is_in_exactly_one_run_without_gaps_that_fits(items: list[Chunk], most: int) -> None:
    runs = merge_adjacent(items, lambda run: len(run) <= most)

    assert sorted((c.section, c.ordinal) for run in runs for c in run.items) == sorted(
        (c.section, c.ordinal) for c in items
    )
    assert [run.rank for run in runs] == sorted(min(items.index(c) for c in run.items) for run in runs)
    for run in runs:
        assert len(run.items) <= most
        assert {c.section for c in run.items} == {run.items[0].section}
        assert [c.ordinal for c in run.items] == list(
            range(run.items[0].ordinal, run.items[0].ordinal + len(run.items))
        )
