from importlib.resources import files
from pathlib import Path

import pytest

from edge_rag.core.placement import ModelStage, OnUnavailable, Precision, Provider
from edge_rag.device.profile import builtin_profiles, parse_profile, with_overrides
from edge_rag.errors import ConfigurationError

X86 = (files("edge_rag.device") / "profiles" / "cpu-x86.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("share = 1.0", "share = 1.5", r"mine\.toml: threads\.share: .*less than or equal to 1"),
        ("share = 1.0", "", r"mine\.toml: threads\.share: Field required"),
        ("share = 1.0", "shares = 1.0", r"mine\.toml: .*threads\.shares: Extra inputs"),
        ('providers = ["cpu"]', 'providers = ["tpu"]', r"mine\.toml: stages\.embedder\.providers\.0: .*'cpu'"),
        ('providers = ["cpu"]', 'providers = ["cpu", "cpu"]', r"mine\.toml: stages\.embedder: .*names one twice"),
        ("resume_celsius = 80", "resume_celsius = 90", r"mine\.toml: thermal: .*must be below"),
        ('on_unavailable = "stop"', 'on_unavailable = "guess"', r"mine\.toml: on_unavailable: .*'fallback'"),
        ("rank = 100", "rank = 0", r"mine\.toml: recognize\.0\.rank: "),
        ('machines = ["x86_64", "AMD64"]', "", r"mine\.toml: recognize\.0: .*must name"),
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
        '[stages.reranker]\nproviders = ["qnn", "cpu"]\non_unavailable = "fallback"\n'
        '[stages.reranker.qnn]\nprecision = "a16w8"\noptions = { htp_performance_mode = "burst" }\n',
    )
    profile = parse_profile("mine", "mine.toml", text)
    reranker = profile.stages[ModelStage.RERANKER]
    assert [(each.provider, each.precision, each.options) for each in reranker.providers] == [
        (Provider.QNN, Precision.A16W8, {"htp_performance_mode": "burst"}),
        (Provider.CPU, Precision.MODEL, {}),
    ]
    assert reranker.on_unavailable is OnUnavailable.FALLBACK
    assert profile.stages[ModelStage.EMBEDDER].on_unavailable is OnUnavailable.STOP


def test_a_profile_file_replaces_its_keys_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'on_unavailable = "stop"\n[batch]\nmax_slots = 3\n[stages.embedder]\nproviders = ["cuda", "cpu"]\n'
        '[stages.embedder.cuda.options]\ngpu_mem_limit = "1000000"\n[thermal]\npower_budget_watts = 12.5\n'
    )
    before = next(profile for profile in builtin_profiles() if profile.name == "jetson-orin-nano-8g")
    after = with_overrides(before, file)
    assert (after.max_slots, after.max_step_tokens) == (3, before.max_step_tokens)
    assert (after.thermal.power_budget_watts, after.thermal.throttle_celsius) == (12.5, before.thermal.throttle_celsius)
    assert after.recognize == before.recognize
    cuda, _ = after.stages[ModelStage.EMBEDDER].providers
    assert cuda.precision is Precision.FP16
    assert cuda.options == {"arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": "1000000"}
    assert {stage.on_unavailable for stage in after.stages.values()} == {OnUnavailable.STOP}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[batch]\nslots = 3\n", r"mine\.toml: batch\.slots: Extra inputs"),
        ("batch = 3\n", r"mine\.toml: batch: "),
        ("[[recognize]]\nrank = 999\n", r"mine\.toml: recognize: cannot be changed"),
        ("[batch\n", r"mine\.toml: not a TOML file"),
        ("\udce9", r"profile_file: .*mine\.toml cannot be read"),
    ],
)
def test_an_invalid_profile_file_is_refused_with_its_name_and_key(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match=message):
        with_overrides(builtin_profiles()[0], file)
