from importlib.resources import files

import pytest

from edge_rag.core.placement import Precision, Provider, Stage, WhenUnmet
from edge_rag.device.profile_file import parse_profile
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
        ('when_unmet = "stop"', 'when_unmet = "guess"', r"mine\.toml: when_unmet: .*'step-down'"),
        ("rank = 100", "rank = 0", r"mine\.toml: recognize\.0\.rank: "),
        ('machines = ["x86_64", "AMD64"]', "", r"mine\.toml: recognize\.0: .*must ask for"),
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
