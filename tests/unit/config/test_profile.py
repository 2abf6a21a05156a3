from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.config.profile import (
    DeviceFacts,
    _cgroup_headroom,
    builtin_profiles,
    choose,
    kv_page_count,
    probe,
)
from edge_rag.errors import ConfigurationError


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "cpu-x86"), ("aarch64", "cpu-arm64")])
def test_auto_recognizes_the_board(machine: str, name: str) -> None:
    assert choose("auto", DeviceFacts(machine, 4, 1 << 30), builtin_profiles()).name == name


def test_a_profile_can_be_named_on_any_machine() -> None:
    assert choose("cpu-arm64", DeviceFacts("x86_64", 4, 1 << 30), builtin_profiles()).name == "cpu-arm64"


@pytest.mark.parametrize("wanted", ["auto", "toaster"])
def test_an_unknown_board_or_profile_lists_the_known_ones(wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="cpu-arm64, cpu-x86"):
        choose(wanted, DeviceFacts("riscv64", 4, 1 << 30), builtin_profiles())


def test_the_machine_the_tests_run_on_can_be_probed() -> None:
    facts = probe()
    assert facts.cores >= 1
    assert facts.available_bytes > 0


def test_the_cgroups_headroom_is_its_limit_less_its_use(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert _cgroup_headroom(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert _cgroup_headroom(tmp_path) is None


@given(st.integers(1, 1 << 34), st.integers(1, 1 << 20), st.integers(1, 64), st.integers(1, 64), st.integers(1, 8192))
def test_the_planned_pages_fit_the_budget_and_one_full_sequence_or_nothing_is_planned(
    budget: int, page_bytes: int, page_tokens: int, slots: int, context: int
) -> None:
    needed = -(-context // page_tokens)
    try:
        pages = kv_page_count(budget, page_bytes, page_tokens, slots, context)
    except ConfigurationError:
        assert needed * page_bytes > budget
    else:
        assert needed <= pages <= 2 * slots * needed
        assert pages * page_bytes <= budget
