from pathlib import Path

import pytest

from edge_rag.config.settings import load_settings
from edge_rag.core.query import AnswerMode
from edge_rag.errors import ConfigurationError


def test_without_a_file_every_setting_has_a_default_that_works() -> None:
    settings = load_settings()
    assert settings.listen == "127.0.0.1:7421"
    assert settings.generator.mode is AnswerMode.QUOTE
    assert (settings.models.directory / settings.models.embedder).name == "multilingual-e5-small"
    assert settings.models.generator == ""


def test_the_command_line_overrides_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "edge-rag.toml"
    file.write_text('listen = "127.0.0.1:1"\nthreads = 1\n[generator]\nmax_slots = 7\nmode = "free"\n')
    monkeypatch.setenv("EDGE_RAG_THREADS", "2")
    monkeypatch.setenv("EDGE_RAG_LISTEN", "127.0.0.1:2")
    settings = load_settings(file, {"listen": "127.0.0.1:3"})
    assert (settings.listen, settings.threads) == ("127.0.0.1:3", 2)
    assert (settings.generator.max_slots, settings.generator.mode) == (7, AnswerMode.FREE)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("threads = 'many'", "threads"),
        ("listen = ", "TOML"),
        ("\x00", "TOML"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_file(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "edge-rag.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    assert str(file) in str(refused.value)
    assert names in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_settings(tmp_path / "absent.toml")
