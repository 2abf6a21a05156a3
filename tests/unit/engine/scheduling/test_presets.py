import pytest

from edge_rag.core.query import SchedulingPreset
from edge_rag.engine.scheduling.policy import SchedulerLimits, StepSize, limits_for
from edge_rag.errors import ConfigurationError

BALANCED = StepSize(slots=8, tokens=512, prefill_share=0.25)


def test_the_balanced_preset_is_the_profile() -> None:
    assert limits_for(SchedulingPreset.BALANCED, BALANCED) == SchedulerLimits(8, 512, 126)


def test_slots_and_tokens_grow_from_latency_to_throughput() -> None:
    points = [
        limits_for(preset, BALANCED)
        for preset in (SchedulingPreset.LATENCY, SchedulingPreset.BALANCED, SchedulingPreset.THROUGHPUT)
    ]
    assert [p.max_slots for p in points] == [4, 8, 16]
    assert [p.max_step_tokens for p in points] == [256, 512, 1024]


@pytest.mark.parametrize("preset", SchedulingPreset)
def test_explicit_limits_override_the_preset(preset: SchedulingPreset) -> None:
    limits = limits_for(preset, BALANCED, max_slots=5, max_step_tokens=100)
    assert (limits.max_slots, limits.max_step_tokens) == (5, 100)


def test_one_slot_is_left_on_the_smallest_device() -> None:
    assert limits_for(SchedulingPreset.LATENCY, StepSize(1, 64, 0.5)).max_slots == 1


def test_more_slots_than_a_step_holds_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        limits_for(SchedulingPreset.BALANCED, BALANCED, max_slots=64, max_step_tokens=64)
