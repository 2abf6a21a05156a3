"""Ingest yields to queries, and queries cannot starve it."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.pipeline.yield_to_queries import QUIET_S, IngestYield, longest_pause_s


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0, 1e4), st.floats(0.01, 1))
def test_ingest_gets_at_least_its_share_of_the_time(worked_s: float, share: float) -> None:
    pause_s = longest_pause_s(worked_s, share)

    assert pause_s >= 0
    assert worked_s >= share * (worked_s + pause_s) * (1 - 1e-9)


def test_ingest_continues_at_once_without_queries() -> None:
    IngestYield(Clock()).yield_to_queries(1e6)


def test_ingest_waits_until_it_has_been_quiet_for_a_while() -> None:
    clock = Clock()
    ingest_yield = IngestYield(clock)
    with ingest_yield.query():
        pass
    worker = threading.Thread(target=ingest_yield.yield_to_queries, args=(1e6,))
    worker.start()
    worker.join(3 * QUIET_S)
    assert worker.is_alive()

    clock.now += QUIET_S

    worker.join(30)
    assert not worker.is_alive()


def test_ingest_waits_for_the_last_query() -> None:
    ingest_yield = IngestYield()
    passed = threading.Event()
    first, second = ingest_yield.query(), ingest_yield.query()
    first.__enter__()
    second.__enter__()

    def work() -> None:
        ingest_yield.yield_to_queries(1e6)
        passed.set()

    worker = threading.Thread(target=work)
    worker.start()
    first.__exit__(None, None, None)
    assert not passed.is_set()

    second.__exit__(None, None, None)

    worker.join(30)
    assert passed.is_set()


def test_a_flood_of_queries_does_not_stop_ingest() -> None:
    ingest_yield = IngestYield()
    with ingest_yield.query():
        ingest_yield.yield_to_queries(0.001)


def test_closing_ends_waits() -> None:
    ingest_yield = IngestYield(Clock())
    with ingest_yield.query():
        worker = threading.Thread(target=ingest_yield.yield_to_queries, args=(1e6,))
        worker.start()
        ingest_yield.close()
        worker.join(30)
        assert not worker.is_alive()


def test_a_failed_query_is_over_too() -> None:
    ingest_yield = IngestYield()
    with pytest.raises(ValueError, match="no"):
        with ingest_yield.query():
            raise ValueError("no")

    ingest_yield.yield_to_queries(1e6)
