from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.monitoring.resources import MemoryItem
from edge_rag.device.memory_plan import (
    BatchSizes,
    GeneratorNeeds,
    MemoryBounds,
    RerankerNeeds,
    plan_memory,
)
from edge_rag.errors import ConfigurationError

MIB = 1 << 20
PROCESS = MemoryItem("process", 150 * MIB)
RERANKER = RerankerNeeds(weights_bytes=0, question_bytes=8 * MIB, arena_bytes=0)
# Half a billion parameters of 4 bits: pages of 32 tokens and 2,048 tokens of context.
GENERATOR = GeneratorNeeds(
    weights_bytes=350 * MIB,
    token_bytes=72 * 1024,
    slot_bytes=MIB,
    page_bytes=400 * 1024,
    page_tokens=32,
    max_context=2048,
    least_context=2048,
)
SIZES = BatchSizes(slots=8, step_tokens=512, questions=4, cache_bytes=64 * MIB)


def bounds(budget_mib: int, kv_mib: int | None = None) -> MemoryBounds:
    return MemoryBounds(budget_mib * MIB, 256 * MIB, 0.25, None if kv_mib is None else kv_mib * MIB)


def test_with_enough_memory_all_sizes_and_twice_the_pages_of_full_slots_are_planned() -> None:
    plan = plan_memory(bounds(16_384), [PROCESS], RERANKER, GENERATOR, SIZES)
    assert (plan.sizes, plan.shrink_steps, plan.pages) == (SIZES, 0, 2 * 8 * 64)


def test_pages_take_no_more_than_their_share_once_the_slots_have_enough() -> None:
    plan = plan_memory(bounds(1400), [PROCESS], RERANKER, GENERATOR, SIZES)
    assert (plan.shrink_steps, plan.kv_bytes) == (0, 896 * 400 * 1024)  # a quarter of 1,400 MiB


def test_half_the_memory_halves_slots_step_batch_and_cache_and_still_fits() -> None:
    whole = plan_memory(bounds(1200), [PROCESS], RERANKER, GENERATOR, SIZES)
    half = plan_memory(bounds(700), [PROCESS], RERANKER, GENERATOR, SIZES)
    assert (whole.shrink_steps, half.shrink_steps) == (0, 2)
    assert half.sizes == BatchSizes(slots=2, step_tokens=128, questions=1, cache_bytes=16 * MIB)
    assert half.pages < whole.pages
    assert half.planned_bytes + half.spare_bytes == half.budget_bytes


def test_a_long_context_does_not_cost_slots() -> None:
    long = replace(GENERATOR, max_context=32_768, least_context=32_768)
    plan = plan_memory(bounds(1500), [PROCESS], RERANKER, long, SIZES)
    assert (plan.sizes.slots, plan.shrink_steps) == (8, 0)
    assert plan.pages >= long.sequence_pages


def test_configured_slots_are_not_halved() -> None:
    fixed = BatchSizes(8, 512, 4, 64 * MIB, least_slots=8)
    plan = plan_memory(bounds(750), [PROCESS], RERANKER, GENERATOR, fixed)
    assert (plan.sizes.slots, plan.sizes.step_tokens, plan.sizes.questions) == (8, 128, 1)


def test_where_nothing_fits_the_error_has_every_number_and_what_to_change() -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan_memory(bounds(500), [PROCESS], RERANKER, GENERATOR, SIZES)
    assert str(refused.value) == (
        "memory: 500 MiB can be had, at least 601 are needed: process 150, reranker 8, generator's weights 350, "
        "generator's steps 6, KV pages 25, reserve 63; give the device or the cgroup more memory, end other programs, "
        "lower limits.concurrent_calls, or choose a smaller generator"
    )


def test_configured_pages_are_planned_or_refused() -> None:
    plan = plan_memory(bounds(900, kv_mib=100), [PROCESS], RERANKER, GENERATOR, SIZES)
    assert plan.pages == 100 * MIB // (400 * 1024)
    with pytest.raises(ConfigurationError, match=r"KV pages 400; lower generator\.kv_memory_mib, give the device"):
        plan_memory(bounds(880, kv_mib=500), [PROCESS], RERANKER, GENERATOR, SIZES)
    with pytest.raises(
        ConfigurationError, match=r"generator\.kv_memory_mib: 10 MiB hold 800 tokens, one sequence needs 2048"
    ):
        plan_memory(bounds(900, kv_mib=10), [PROCESS], RERANKER, GENERATOR, SIZES)


@given(
    budget=st.integers(0, 1 << 35),
    reserve=st.integers(0, 1 << 32),
    share=st.floats(0.01, 1),
    kv=st.none() | st.integers(1, 1 << 33),
    slots=st.integers(1, 64),
    page=st.integers(1, 1 << 22),
    context=st.integers(1, 40_000),
)
def test_a_plan_is_within_the_budget_and_holds_a_whole_sequence_or_there_is_none(
    budget: int, reserve: int, share: float, kv: int | None, slots: int, page: int, context: int
) -> None:
    generator = GeneratorNeeds(50 * MIB, 4096, 4096, page, 32, context, context)
    sizes = BatchSizes(slots, 512, 4, 64 * MIB)
    try:
        plan = plan_memory(MemoryBounds(budget, reserve, share, kv), [PROCESS], RERANKER, generator, sizes)
    except ConfigurationError:
        return
    assert plan.planned_bytes <= budget
    assert plan.spare_bytes >= (0 if kv is not None else min(reserve, budget // 8))
    assert generator.sequence_pages <= plan.pages <= 2 * plan.sizes.slots * generator.sequence_pages
    assert kv is None or plan.kv_bytes <= kv


@given(small=st.integers(300, 4000), more=st.integers(0, 4000))
def test_more_memory_never_means_fewer_slots(small: int, more: int) -> None:
    def slots(budget_mib: int) -> int:
        try:
            return plan_memory(bounds(budget_mib), [PROCESS], RERANKER, GENERATOR, SIZES).sizes.slots
        except ConfigurationError:
            return 0

    assert slots(small) <= slots(small + more)
