from pathlib import Path

import pytest

from edge_rag.device.facts import DeviceFacts, MemoryFacts, ProcessorFacts
from edge_rag.device.profile import builtin_profiles, choose
from edge_rag.errors import ConfigurationError
from tests.unit.device.recorded_boards import BOARDS, recorded

# Board, profile, rank of the rule that decides, threads that compute.
CHOICES = [
    ("jetson-orin-nano-8g", "jetson-orin-nano-8g", 500, 6),
    ("jetson-orin-nano-4g", "jetson-orin-nano-8g", 500, 6),
    ("jetson-agx-orin-as-nano-4g", "jetson-orin-nano-8g", 500, 6),
    ("jetson-orin-nx-16g", "jetson-orin-nx-16g", 500, 8),
    ("jetson-orin-nx-other-carrier", "jetson-orin-nx-16g", 400, 8),
    ("jetson-agx-orin-32g", "jetson-agx-orin", 500, 8),
    ("jetson-agx-orin-64g", "jetson-agx-orin", 500, 12),
    ("jetson-agx-thor", "jetson-thor", 400, 14),
    ("jetson-xavier-nx", "cpu-arm64", 100, 6),
    ("snapdragon-x-elite", "qnn-htp", 400, 12),
    ("qcs6490-rubik-pi-3", "qnn-htp", 400, 4),
    ("qcs6490-rb3-gen2", "qnn-htp", 400, 4),
    ("qcs8550-aim300", "qnn-htp", 400, 5),
    ("qualcomm-rb1", "cpu-arm64", 100, 4),
    ("raspberry-pi-5-4g", "raspberry-pi-5", 400, 4),
    ("raspberry-pi-5-8g", "raspberry-pi-5", 400, 4),
    ("raspberry-pi-5-16g", "raspberry-pi-5", 400, 4),
    ("raspberry-pi-4-8g", "cpu-arm64", 100, 4),
    ("rk3588-rock-5b", "cpu-arm64", 100, 4),
    ("intel-n100", "cpu-x86", 100, 4),
    ("intel-n100-openvino", "openvino", 210, 4),
    ("intel-core-ultra", "openvino", 220, 20),
    ("pc-nvidia", "cuda", 300, 32),
    ("pc-nvidia-old-cuda", "cuda", 300, 32),
    ("pc-nvidia-no-driver", "cpu-x86", 100, 12),
    ("container-1g", "cpu-x86", 100, 2),
    ("container-cgroup-v1", "cpu-x86", 100, 2),
    ("virtual-machine", "cpu-x86", 100, 2),
]


def plain(machine: str) -> DeviceFacts:
    return DeviceFacts(ProcessorFacts(machine, "", frozenset(), (), frozenset()), MemoryFacts(1 << 30, 1 << 30))


@pytest.mark.parametrize(("board", "profile", "rank", "threads"), CHOICES)
def test_each_board_gets_its_profile_by_the_rule_meant_for_it(
    board: str, profile: str, rank: int, threads: int, tmp_path: Path
) -> None:
    facts = recorded(board, tmp_path)
    choice = choose("auto", facts, builtin_profiles())
    won = next(finding for finding in choice.results if finding.holds)
    assert (choice.profile.name, won.profile, won.rank) == (profile, profile, rank)
    assert choice.profile.threads(facts) == threads
    assert {finding.profile for finding in choice.results if finding.holds and finding.rank == rank} == {profile}


def test_every_recorded_board_is_in_the_table() -> None:
    assert {path.stem for path in BOARDS.glob("*.toml")} == {board for board, *_ in CHOICES}


def test_the_reason_names_what_was_found(tmp_path: Path) -> None:
    choice = choose("auto", recorded("jetson-orin-nx-other-carrier", tmp_path), builtin_profiles())
    assert choice.reason == (
        "the device tree has nvidia,tegra234; 15.2 GiB of memory reach 10; 15.2 GiB of memory are below 20"
    )


def test_a_rule_that_does_not_hold_says_what_is_missing(tmp_path: Path) -> None:
    findings = choose("auto", recorded("intel-n100", tmp_path), builtin_profiles()).results
    texts = {finding.rank: [c.text for c in finding.conditions if not c.holds] for finding in findings}
    assert texts[220] == ["no intel-npu with its driver"]
    assert texts[210] == ["the provider openvino is not installed"]


def test_a_profile_can_be_named_on_any_machine() -> None:
    choice = choose("jetson-thor", plain("x86_64"), builtin_profiles())
    assert (choice.profile.name, choice.reason) == ("jetson-thor", "named in the settings")


@pytest.mark.parametrize("wanted", ["auto", "toaster"])
def test_an_unknown_board_or_profile_lists_the_known_ones(wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="cpu-arm64, cpu-x86, cuda, jetson-agx-orin"):
        choose(wanted, plain("riscv64"), builtin_profiles())
