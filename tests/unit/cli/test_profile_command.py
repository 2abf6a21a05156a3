import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.bootstrap.provider_trial import ProviderTrial, try_stage
from edge_rag.cli.main import main
from edge_rag.core.placement import ModelStage
from edge_rag.device.profile import builtin_profiles


def test_list_marks_the_profile_that_the_box_gets(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_RAG_PROFILE", "raspberry-pi-5")
    listed = json.loads(runner.invoke(main, ["profile", "list", "--json"]).stdout)["profiles"]
    assert [each["name"] for each in listed] == [profile.name for profile in builtin_profiles()]
    assert [each["name"] for each in listed if each["chosen"]] == ["raspberry-pi-5"]
    assert "* raspberry-pi-5 " in runner.invoke(main, ["profile", "list"]).stdout


def test_show_prints_what_is_in_force_with_the_keys_of_the_operators_file(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[batch]\nmax_slots = 3\n[thermal]\npower_budget_watts = 15\n")
    monkeypatch.setenv("EDGE_RAG_PROFILE_FILE", str(file))
    shown = json.loads(runner.invoke(main, ["profile", "show", "qnn-htp", "--json"]).stdout)
    assert (shown["name"], shown["batch"]["max_slots"], shown["thermal"]["power_budget_watts"]) == ("qnn-htp", 3, 15.0)
    assert [each["provider"] for each in shown["stages"]["embedder"]["providers"]] == ["qnn", "cpu"]
    people = runner.invoke(main, ["profile", "show", "qnn-htp"]).stdout
    assert "qnn in a16w8  htp_performance_mode=sustained_high_performance" in people


def test_showing_a_profile_that_there_is_none_of_names_those_there_are(runner: CliRunner) -> None:
    result = runner.invoke(main, ["profile", "show", "toaster"])
    assert result.exit_code == 2
    assert "there is no 'toaster'; known profiles: cpu-arm64, cpu-x86" in result.stderr


def test_test_runs_every_provider_of_every_stage_and_fails_where_one_must_be_had_and_cannot(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[stages.embedder]\nproviders = ["cuda", "cpu"]\n[stages.generator]\nproviders = ["cpu"]\n')
    monkeypatch.setenv("EDGE_RAG_PROFILE", "cpu-x86")
    monkeypatch.setenv("EDGE_RAG_PROFILE_FILE", str(file))
    result = runner.invoke(main, ["profile", "test", "--json", "--data-dir", str(tmp_path)])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"], report["profile"]) == (1, False, "cpu-x86")
    embedder, reranker, generator = report["stages"]
    assert [(each["provider"], each["ran"]) for each in embedder["providers"]] == [("cuda", False), ("cpu", True)]
    assert embedder["providers"][0]["reason"].startswith("cuda cannot be used: ")
    assert (embedder["starts"], reranker["starts"], generator["starts"]) == (False, True, True)


def test_a_driver_that_crashes_is_told_and_takes_nothing_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = tmp_path / "python"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(crashing))
    trial = try_stage(ModelStage.EMBEDDER, 0, None, None)
    assert trial == ProviderTrial(False, "the process was ended by signal 11: the driver crashed or ran out of memory")
