import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.main import main
from edge_rag.runtime.decoder.product_speed import ProductSpeed
from tests.synthetic.tiny_model import FIXTURES

MODELS = Path(__file__).parents[3] / "models"
QUOTER = FIXTURES / "quoter"


class Store:
    """Runs commands on one data directory that no daemon serves."""

    def __init__(self, runner: CliRunner, data: Path) -> None:
        self._runner = runner
        self._data = data

    def __call__(self, *arguments: str, code: ExitCode = ExitCode.OK) -> Any:
        done = self._runner.invoke(main, ["models", *arguments, "--data-dir", str(self._data), "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_RAG_LISTEN", f"unix:{tmp_path}/nobody")
    return tmp_path / "data"


@pytest.fixture
def models(runner: CliRunner, data: Path) -> Store:
    return Store(runner, data)


def names(listed: Any) -> set[str]:
    return {model["name"] for model in listed["models"]}


def test_a_model_is_added_used_verified_and_removed(models: Store, tmp_path: Path) -> None:
    source = tmp_path / "Tiny Qwen"
    shutil.copytree(FIXTURES / "tiny-llama", source, ignore=shutil.ignore_patterns("manifest.json", "paged*"))
    added = models("add", str(source), "--licence", "MIT")
    assert (added["name"], added["role"], added["licence"]) == ("tiny-qwen", "generator", "MIT")
    assert models("use", "generator", "tiny-qwen")["overridden_by"] is None
    listed = next(model for model in models("list")["models"] if model["name"] == "tiny-qwen")
    assert listed["chosen"]
    assert listed["memory_bytes"] > listed["bytes"] > 0
    assert models("verify")["ok"]
    refused = models("remove", "tiny-qwen", code=ExitCode.FAILURE)
    assert "models use generator default" in refused["error"]["message"]
    models("use", "generator", "default")
    assert models("remove", "tiny-qwen") == {"removed": "tiny-qwen"}
    assert names(models("list")) == {"minilm-l6", "multilingual-e5-small"}


def test_a_hostile_folder_is_refused_with_the_reason_and_nothing_is_left(
    models: Store, tmp_path: Path, data: Path
) -> None:
    source = tmp_path / "hostile"
    shutil.copytree(FIXTURES / "tiny-llama", source, ignore=shutil.ignore_patterns("manifest.json", "paged*"))
    config = json.loads((source / "genai_config.json").read_bytes())
    config["model"]["decoder"]["session_options"]["custom_ops_library"] = "/tmp/evil.so"
    (source / "genai_config.json").write_text(json.dumps(config))
    refused = models("add", str(source), code=ExitCode.FAILURE)
    assert "custom_ops_library" in refused["error"]["message"]
    assert str(source) in refused["error"]["message"]
    assert names(models("list")) == {"minilm-l6", "multilingual-e5-small"}
    assert sorted(path.name for path in (data / "models").iterdir()) == [".lock"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_leaves_the_store_as_it_was(tmp_path: Path, data: Path, sent: signal.Signals) -> None:
    source = tmp_path / "tiny"
    shutil.copytree(FIXTURES / "tiny-llama", source, ignore=shutil.ignore_patterns("manifest.json", "paged*"))
    command = [sys.executable, "-m", "edge_rag.cli.main", "models", "add", str(source), "--data-dir", str(data)]
    with subprocess.Popen(command, cwd=MODELS.parent, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "running it, one request" in line:
                assert any(path.name.startswith(".adding-") for path in (data / "models").iterdir())
                process.send_signal(sent)
        assert process.wait() == ExitCode.INTERRUPTED
    assert [path.name for path in (data / "models").iterdir()] == [".lock"]


def test_where_keys_are_trusted_nothing_unsigned_is_added(
    models: Store, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "ours.pem"
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "other.pem").write_text("another key")
    monkeypatch.setenv("EDGE_RAG_MODELS__TRUSTED_KEYS", json.dumps([str(key)]))
    source = str(FIXTURES / "tiny-cross-encoder")
    assert "no model.sig" in models("add", source, code=ExitCode.FAILURE)["error"]["message"]
    refused = models("add", source, "--key", str(tmp_path / "other.pem"), code=ExitCode.USAGE)
    assert "not among models.trusted_keys" in refused["error"]["message"]
    assert [path.name for path in (data / "models").iterdir()] == [".lock"]


def test_a_setting_that_wins_over_the_choice_is_said(
    models: Store, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(QUOTER, data / "models" / "second")
    monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", "other")
    assert models("use", "generator", "second")["overridden_by"] == "other"
    monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", "quoter")
    assert models("use", "generator", "second")["overridden_by"] is None


def test_a_model_that_settings_name_is_not_removed(models: Store, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(QUOTER, data / "models" / "second")
    monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", "second")
    refused = models("remove", "second", code=ExitCode.FAILURE)
    assert "named in the settings" in refused["error"]["message"]


def test_verifying_all_names_the_altered_one_and_goes_on(models: Store, data: Path) -> None:
    for name in ("first", "second"):
        shutil.copytree(QUOTER, data / "models" / name)
    (data / "models" / "first" / "tokenizer.json").write_text("{}")
    report = models("verify", code=ExitCode.FAILURE)
    problems = {model["name"]: model["problem"] for model in report["models"]}
    assert "tokenizer.json" in problems["first"]
    assert problems["second"] == problems["minilm-l6"] == ""


@pytest.mark.parametrize("command", [("use", "generator", "absent"), ("verify", "absent"), ("remove", "absent")])
def test_a_model_that_does_not_exist_has_an_exit_code_of_its_own(models: Store, command: tuple[str, ...]) -> None:
    refused = models(*command, code=ExitCode.NOT_FOUND)
    assert refused["error"]["code"] == "NOT_FOUND"
    assert "absent" in refused["error"]["message"]


def test_what_fits_is_recommended_with_the_command_that_adds_it(models: Store) -> None:
    small, large = (models("recommend", "--memory-gib", size, "--no-probe")["models"] for size in ("1.5", "14"))
    assert {model["name"] for model in small} < {model["name"] for model in large}
    for model in large:
        assert model["needs"]["memory_bytes"] <= 14 * 2**30
        assert model["command"].startswith(f"edge-rag models add {model['source']}")
        assert model["checked"]
        assert model["expected_tokens_per_s"] is None
    (speed,) = {model["expected_tokens_per_s"]["one"] > 0 for model in models("recommend")["models"]}
    assert speed


def test_what_answers_slower_than_people_read_is_recommended_last(
    runner: CliRunner, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = ProductSpeed(1, {(bits, rows): 4e9 for bits in (4, 8) for rows in (1, 8)})
    monkeypatch.setattr("edge_rag.runtime.decoder.product_speed.measure_product_speed", lambda: slow)
    monkeypatch.setenv("XDG_CACHE_HOME", str(data / "cache"))
    arguments = ["models", "recommend", "--memory-gib", "14", "--role", "generator", "--data-dir", str(data)]
    listed = json.loads(runner.invoke(main, [*arguments, "--json"]).stdout)["models"]
    is_slow = [model["expected_tokens_per_s"]["one"] < 5 for model in listed]
    assert is_slow == sorted(is_slow)
    assert {True, False} == {*is_slow}
    shown = runner.invoke(main, arguments)
    head, first, *_ = shown.stdout.splitlines()
    assert " ".join(head.split()) == "GENERATOR BITS MEMORY MIB DISK MIB TOKENS/S 8 AT ONCE LICENCE"
    assert first.split()[0] == listed[0]["name"]
    assert f"the last {sum(is_slow)} write more slowly" in shown.stderr


def test_people_get_lines(runner: CliRunner, data: Path) -> None:
    done = runner.invoke(main, ["models", "list", "--data-dir", str(data)])
    assert done.exit_code == 0
    assert any("minilm-l6" in line and "built-in" in line for line in done.stdout.splitlines())
    done = runner.invoke(main, ["models", "recommend", "--no-probe", "--memory-gib", "2", "--data-dir", str(data)])
    assert "edge-rag models add hf:" in done.stdout
    assert "    edge-rag models use embedder multilingual-e5-small" in done.stdout


def test_an_exported_model_is_imported_under_its_name_or_another(models: Store, tmp_path: Path) -> None:
    shutil.copytree(QUOTER, tmp_path / "quoter")
    models("add", str(tmp_path / "quoter"))
    file = tmp_path / "quoter.tar"
    exported = models("export", "quoter", str(file))
    assert exported == {
        "name": "quoter",
        "role": "generator",
        "file": str(file),
        "bytes": file.stat().st_size,
        "signed": False,
    }
    assert "a model quoter exists" in models("import", str(file), code=ExitCode.FAILURE)["error"]["message"]
    assert models("import", str(file), "--name", "other")["name"] == "other"
    models("remove", "quoter")
    assert models("import", str(file))["name"] == "quoter"


def test_an_export_replaces_no_file_unasked_and_leaves_none_that_is_not_complete(
    models: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.tar"
    file.write_text("mine")
    assert "--force" in models("export", "minilm-l6", str(file), code=ExitCode.FAILURE)["error"]["message"]

    def interrupted(self: object, name: str, target: BinaryIO, *others: object) -> None:
        target.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("edge_rag.model_store.store.ModelStore.export", interrupted)
    models("export", "minilm-l6", str(file), "--force", code=ExitCode.INTERRUPTED)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["model.tar"]
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"x" * 2000, "not a complete archive of `edge-rag models export`")],
)
def test_what_cannot_be_imported_is_named_with_the_reason(
    models: Store, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "model.tar"
    if content is not None:
        file.write_bytes(content)
    problem = models("import", str(file), code=ExitCode.FAILURE)["error"]["message"]
    assert message in problem
    assert str(file) in problem
