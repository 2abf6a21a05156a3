"""Forecasts of jobs: costs fitted to what was measured, and equal shares of owners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.jobs import JobBacklog, JobId
from edge_rag.pipeline.ingest_forecast import CostModel, Speed, forecast


def measured(*costs: tuple[int, float]) -> CostModel:
    model = CostModel()
    for size_bytes, seconds in costs:
        model.add(size_bytes, seconds)
    return model


def test_a_cost_has_a_part_of_each_document_and_one_by_size() -> None:
    model = measured(*[(size, 0.5 + size / 1000) for size in (100, 5000, 2000, 40, 9000)])

    assert model.seconds(1, 0) == pytest.approx(0.5)
    assert model.seconds(3, 7000) == pytest.approx(3 * 0.5 + 7)


@given(
    st.lists(st.tuples(st.integers(0, 1 << 30), st.floats(0, 1e4)), min_size=1, max_size=50), st.integers(0, 1 << 30)
)
def test_an_estimate_is_never_negative_nor_falls_with_size(costs: list[tuple[int, float]], size_bytes: int) -> None:
    model = measured(*costs)

    assert 0 <= model.seconds(1, size_bytes) <= model.seconds(2, 2 * size_bytes) + 1e-9


def backlog(job: str, owner: str, documents: int) -> JobBacklog:
    return JobBacklog(JobId(job), owner, documents, 100 * documents)


def test_a_job_waits_for_its_share_of_others_and_for_earlier_jobs_of_its_owner() -> None:
    costs = measured((100, 1.0))
    waits = [backlog("eve-1", "eve", 390), backlog("bob-1", "bob", 3), backlog("bob-2", "bob", 2)]

    last = forecast(JobId("bob-2"), waits, costs, 1.0)
    assert last.documents_ahead == 3 + 5
    assert last.time_left_s == pytest.approx(10.0)
    many = forecast(JobId("eve-1"), waits, costs, 0.5)
    assert many.documents_ahead == 5
    assert many.time_left_s == pytest.approx(2 * 395.0)


def test_before_anything_was_measured_there_is_an_order_and_no_time() -> None:
    expected = forecast(JobId("b"), [backlog("a", "ada", 7), backlog("b", "ada", 1)], CostModel(), 1.0)

    assert (expected.documents_ahead, expected.time_left_s) == (7, None)


@given(st.lists(st.tuples(st.sampled_from(["ada", "bob", "eve"]), st.integers(1, 500)), min_size=1, max_size=8))
def test_nobody_is_expected_to_wait_for_more_than_there_is(jobs: list[tuple[str, int]]) -> None:
    waits = [backlog(str(number), owner, documents) for number, (owner, documents) in enumerate(jobs)]
    costs = measured((100, 1.0))
    total = sum(documents for _, documents in jobs)
    for each in waits:
        expected = forecast(each.job_id, waits, costs, 1.0)
        assert 0 <= expected.documents_ahead <= total - each.documents
        assert expected.time_left_s is not None
        assert each.documents - 1e-6 <= expected.time_left_s <= total + 1e-6


def test_speed_is_what_was_worked_of_the_time_that_passed() -> None:
    speed = Speed()
    assert speed.value == 1.0
    speed.add(worked_s=1.0, passed_s=4.0)
    assert speed.value == pytest.approx(0.25)
