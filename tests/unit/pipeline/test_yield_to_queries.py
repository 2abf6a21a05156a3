"""Ingest gives way to questions, and questions cannot stop it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.pipeline.yield_to_queries import QUIET_S, IngestYield, longest_pause_s


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0, 1e4), st.floats(0.01, 1))
def test_ingest_has_at_least_its_share_of_the_time(worked_s: float, share: float) -> None:
    pause_s = longest_pause_s(worked_s, share)

    assert pause_s >= 0
    assert worked_s >= share * (worked_s + pause_s) * (1 - 1e-9)


def test_ingest_goes_on_at_once_where_nobody_asks() -> None:
    IngestYield(Clock()).yield_to_queries(1e6)


def test_ingest_waits_until_it_has_been_quiet_for_a_while() -> None:
    clock = Clock()
    precedence = IngestYield(clock)
    with precedence.query():
        pass
    worker = threading.Thread(target=precedence.yield_to_queries, args=(1e6,))
    worker.start()
    worker.join(3 * QUIET_S)
    assert worker.is_alive()

    clock.now += QUIET_S

    worker.join(30)
    assert not worker.is_alive()


def test_ingest_waits_for_the_last_question() -> None:
    precedence = IngestYield()
    passed = threading.Event()
    first, second = precedence.query(), precedence.query()
    first.__enter__()
    second.__enter__()

    def work() -> None:
        precedence.yield_to_queries(1e6)
        passed.set()

    worker = threading.Thread(target=work)
    worker.start()
    first.__exit__(None, None, None)
    assert not passed.is_set()

    second.__exit__(None, None, None)

    worker.join(30)
    assert passed.is_set()


def test_a_flood_of_questions_does_not_stop_ingest() -> None:
    precedence = IngestYield()
    with precedence.query():
        precedence.yield_to_queries(0.001)


def test_closing_lets_go_of_who_waits() -> None:
    precedence = IngestYield(Clock())
    with precedence.query():
        worker = threading.Thread(target=precedence.yield_to_queries, args=(1e6,))
        worker.start()
        precedence.close()
        worker.join(30)
        assert not worker.is_alive()


def test_a_question_that_fails_is_over_too() -> None:
    precedence = IngestYield()
    with pytest.raises(ValueError, match="no"):
        with precedence.query():
            raise ValueError("no")

    precedence.yield_to_queries(1e6)
