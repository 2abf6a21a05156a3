import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.config.settings import load_settings

FILE = '# the pump house\nlisten = "127.0.0.1:7500"  # loopback\n\n[generator]\nmax_slots = 2\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "edge-rag.toml"
    path.write_text(FILE)
    return path


def test_check_exits_with_two_and_names_what_is_wrong(file: Path, runner: CliRunner) -> None:
    assert runner.invoke(main, ["config", "check", "--config", str(file)]).exit_code == 0
    file.write_text("[generator]\nmax_slotz = 2\n")
    wrong = runner.invoke(main, ["config", "check", "--config", str(file)])
    assert wrong.exit_code == 2
    assert f"{file}, line 2: generator.max_slotz" in wrong.stderr


def test_show_tells_each_value_with_its_origin(file: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_RAG_THREADS", "3")
    shown = runner.invoke(main, ["config", "show", "--config", str(file), "--changed"]).stdout.splitlines()
    assert shown == [
        f'listen = "127.0.0.1:7500"  # {file}, line 2',
        "threads = 3  # EDGE_RAG_THREADS",
        f"generator.max_slots = 2  # {file}, line 5",
    ]
    listed = json.loads(runner.invoke(main, ["config", "show", "limits", "--json"]).stdout)["settings"]
    assert {each["key"].partition(".")[0] for each in listed} == {"limits"}
    assert {each["origin"] for each in listed} == {"default"}
    unknown = runner.invoke(main, ["config", "show", "limit"])
    assert (unknown.exit_code, "did you mean limits?" in unknown.stderr) == (2, True), unknown.output


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("listen", "127.0.0.1:7600", FILE.replace("7500", "7600")),
        ("generator.max_slots", "4", FILE.replace("max_slots = 2", "max_slots = 4")),
        ("generator.mode", "cite", FILE.replace("[generator]\n", '[generator]\nmode = "cite"\n')),
        ("threads", "2", f"threads = 2\n{FILE}"),
        ("retriever.milvus.uri", "http://m:1", f'{FILE}\n[retriever.milvus]\nuri = "http://m:1"\n'),
        ("models.trusted_keys", '["a.pem"]', f'{FILE}\n[models]\ntrusted_keys = ["a.pem"]\n'),
    ],
)
def test_set_changes_one_value_and_keeps_the_rest_of_the_file(
    file: Path, runner: CliRunner, key: str, value: str, text: str
) -> None:
    changed = runner.invoke(main, ["config", "set", "--config", str(file), key, value])
    assert changed.exit_code == 0, changed.output
    assert file.read_text() == text
    load_settings(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("generator.max_slotz", "4", "did you mean generator.max_slots?"),
        ("generator.max_slots", "many", "edge-rag.toml, line 5: generator.max_slots: Input should be a valid integer"),
        ("generator", "4", "generator"),
    ],
)
def test_set_writes_no_mistake(file: Path, runner: CliRunner, key: str, value: str, message: str) -> None:
    refused = runner.invoke(main, ["config", "set", "--config", str(file), key, value])
    assert refused.exit_code in (1, 2)
    assert message in refused.stderr
    assert file.read_text() == FILE


def test_set_leaves_what_it_cannot_change_to_an_editor(file: Path, runner: CliRunner) -> None:
    text = '[models]\ntrusted_keys = [\n  "a.pem",\n]\n'
    file.write_text(text)
    refused = runner.invoke(main, ["config", "set", "--config", str(file), "models.trusted_keys", "[]"])
    assert (refused.exit_code, file.read_text()) == (1, text), refused.output
