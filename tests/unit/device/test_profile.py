from importlib.resources import files
from pathlib import Path

import pytest

from edge_rag.core.placement import Precision, Provider, Stage, WhenUnmet
from edge_rag.device.choosing import choose
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.probing import _cgroup_headroom, probe
from edge_rag.device.profile_file import builtin_profiles, parse_profile
from edge_rag.errors import ConfigurationError

X86 = (files("edge_rag.device") / "profiles" / "cpu-x86.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "cpu-x86"), ("aarch64", "cpu-arm64")])
def test_auto_recognizes_the_board(machine: str, name: str) -> None:
    assert choose("auto", DeviceFacts(machine, 4, 1 << 30), builtin_profiles()).name == name


def test_a_profile_can_be_named_on_any_machine() -> None:
    assert choose("cpu-arm64", DeviceFacts("x86_64", 4, 1 << 30), builtin_profiles()).name == "cpu-arm64"


@pytest.mark.parametrize("wanted", ["auto", "toaster"])
def test_an_unknown_board_or_profile_lists_the_known_ones(wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="cpu-arm64, cpu-x86"):
        choose(wanted, DeviceFacts("riscv64", 4, 1 << 30), builtin_profiles())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("share = 1.0", "share = 1.5", r"mine\.toml: threads\.share: .*less than or equal to 1"),
        ("share = 1.0", "", r"mine\.toml: threads\.share: Field required"),
        ("share = 1.0", "shares = 1.0", r"mine\.toml: .*threads\.shares: Extra inputs"),
        ('providers = ["cpu"]', 'providers = ["tpu"]', r"mine\.toml: stages\.embedder\.providers\.0: .*'cpu'"),
        ('providers = ["cpu"]', 'providers = ["cpu", "cpu"]', r"mine\.toml: stages\.embedder: .*names one twice"),
        ("resume_celsius = 80", "resume_celsius = 90", r"mine\.toml: thermal: .*must be below"),
        ('when_unmet = "stop"', 'when_unmet = "guess"', r"mine\.toml: when_unmet: .*'step-down'"),
        ("title = ", "title ", r"mine\.toml: not a TOML file"),
    ],
)
def test_a_damaged_profile_is_refused_with_its_file_and_key(old: str, new: str, message: str) -> None:
    assert old in X86
    with pytest.raises(ConfigurationError, match=message):
        parse_profile("mine", "mine.toml", X86.replace(old, new))


def test_a_stage_lists_providers_in_order_each_with_precision_and_options() -> None:
    text = X86.replace(
        '[stages.reranker]\nproviders = ["cpu"]\n',
        '[stages.reranker]\nproviders = ["qnn", "cpu"]\nwhen_unmet = "step-down"\n'
        '[stages.reranker.qnn]\nprecision = "a16w8"\noptions = { htp_performance_mode = "burst" }\n',
    )
    profile = parse_profile("mine", "mine.toml", text)
    reranker = profile.stages[Stage.RERANKER]
    assert [(each.provider, each.precision, each.options) for each in reranker.providers] == [
        (Provider.QNN, Precision.A16W8, {"htp_performance_mode": "burst"}),
        (Provider.CPU, Precision.MODEL, {}),
    ]
    assert reranker.when_unmet is WhenUnmet.STEP_DOWN
    assert profile.stages[Stage.EMBEDDER].when_unmet is WhenUnmet.STOP


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
