import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.cli.batch import in_order, read_questions


@given(st.binary(max_size=400))
def test_any_bytes_give_questions_or_problems_that_name_their_line(content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    for question in read_questions(lines, "file"):
        assert question.text.strip() == question.text != ""
        if question.error is not None:
            assert question.error.message.startswith("file, line ")


@given(st.lists(st.integers(), max_size=60), st.integers(1, 8))
def test_results_come_in_the_order_of_the_input(items: list[int], concurrency: int) -> None:
    assert list(in_order(items, lambda item: item * 2, concurrency)) == [item * 2 for item in items]


def test_as_many_run_at_once_as_allowed_and_no_more() -> None:
    meeting = threading.Barrier(3, timeout=30)
    lock = threading.Lock()
    running = most = 0

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()
        with lock:
            running -= 1

    list(in_order(range(9), work, 3))
    assert most == 3


def test_an_endless_input_is_read_only_a_little_ahead() -> None:
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    results = in_order(endless(), lambda item: item, 2)
    assert [next(results) for _ in range(50)] == list(range(1, 51))
    assert taken <= 50 + 2 * 4


def test_a_failure_of_the_work_itself_is_raised() -> None:
    def work(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    with pytest.raises(ValueError, match="three"):
        list(in_order(range(100), work, 2))
