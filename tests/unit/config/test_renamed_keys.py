from pathlib import Path

import pytest

from edge_rag.config.renamed import REMOVED, RENAMED
from edge_rag.config.settings import Settings, load_settings
from edge_rag.errors import ConfigurationError


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_successor_exists_and_the_old_key_does_not(old: str, new: str) -> None:
    for name, exists in ((new, True), (old, False)):
        section, _, key = name.partition(".")
        table = Settings.model_fields[section].annotation
        assert table is not None
        assert (key in table.model_fields) is exists


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_key_in_a_file_gives_one_error_that_names_its_successor(tmp_path: Path, old: str, new: str) -> None:
    section, _, key = old.partition(".")
    file = tmp_path / "edge-rag.toml"
    file.write_text(f"[{section}]\n{key} = 1\nunknown = 2\n")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    assert str(refused.value) == f"{file}: {old} is now {new}"


def test_several_old_keys_are_named_in_one_error(tmp_path: Path) -> None:
    file = tmp_path / "edge-rag.toml"
    file.write_text('[generator]\ncurve = "latency"\n[offload]\nrest_seconds = 3\n')
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    message = "generator.curve is now generator.preset; offload.rest_seconds is now offload.breaker_open_seconds"
    assert str(refused.value) == f"{file}: {message}"


@pytest.mark.parametrize("spelling", [str.upper, str.lower])
def test_an_old_key_in_the_environment_gives_the_same_error(
    monkeypatch: pytest.MonkeyPatch, spelling: type[str]
) -> None:
    name = spelling("EDGE_RAG_GENERATOR__CURVE")
    monkeypatch.setenv(name, "latency")
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"environment: {name}: generator.curve is now generator.preset"


@pytest.mark.parametrize(("old", "reason"), REMOVED.items())
def test_a_key_that_is_gone_gives_one_error_with_the_reason(tmp_path: Path, old: str, reason: str) -> None:
    section, _, key = old.partition(".")
    file = tmp_path / "edge-rag.toml"
    file.write_text(f"[{section}]\n{key} = 1\n")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    assert str(refused.value) == f"{file}: {old} is gone, remove it: {reason}"
