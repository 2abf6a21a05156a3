import json
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import admin_pb2
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.cli.health_checks import (
    Verdict,
    address_check,
    data_directory_check,
    documents_check,
    http_check,
    python_check,
)
from edge_rag.cli.main import main
from edge_rag.config.sections import HttpSettings
from edge_rag.core.documents.document import Upload
from tests.unit.cli.scripted_daemon import ScriptedDaemon
from tests.unit.retriever.hashed_words import HashedWords


@pytest.mark.parametrize(
    ("version", "verdict"), [((3, 10, 14), Verdict.FAIL), ((3, 11, 0), Verdict.OK), ((3, 14, 1), Verdict.OK)]
)
def test_python_must_be_3_11_or_newer(version: tuple[int, int, int], verdict: Verdict) -> None:
    assert python_check(version, "aarch64").verdict is verdict


def test_a_data_directory_is_made_where_there_is_room(tmp_path: Path) -> None:
    check = data_directory_check(tmp_path / "deep" / "data")
    assert check.verdict is Verdict.OK
    assert "will be created" in check.detail
    assert not (tmp_path / "deep").exists()


def test_a_data_directory_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    check = data_directory_check(tmp_path / "data" / "edge-rag")
    assert (check.verdict, bool(check.advice)) == (Verdict.FAIL, True)


def test_documents_are_read_whole_and_damage_fails_the_check(tmp_path: Path) -> None:
    assert documents_check(tmp_path).verdict is Verdict.OK
    directory = OpenDirectory(tmp_path, HashedWords())
    directory.library.ingest(Upload.of_bytes("default", "a.txt", "", b"The seal of the inlet valve is checked. " * 500))
    assert documents_check(tmp_path).detail.startswith("1 documents")
    directory.close()
    database = tmp_path / "documents.sqlite3"
    content = bytearray(database.read_bytes())
    content[content.index(b"inlet valve")] ^= 1
    database.write_bytes(content)

    check = documents_check(tmp_path)

    assert check.verdict is Verdict.FAIL
    assert "restore" in check.advice


def test_a_free_port_is_fine_and_one_that_another_program_holds_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        held = address_check(address)
    assert held.verdict is not Verdict.OK
    assert address_check(address).verdict is Verdict.OK


def test_a_daemon_that_answers_is_named(scripted: ScriptedDaemon) -> None:
    report = admin_pb2.GetStatusResponse(version="0.1.0", state=admin_pb2.DAEMON_STATE_SERVING)
    scripted.script("GetStatus", lambda _, __: report)
    check = address_check(scripted.address)
    assert (check.verdict, check.detail) == (Verdict.OK, f"0.1.0 answers at {scripted.address}: serving")


def test_http_that_cannot_be_served_is_a_failure_only_if_it_was_asked_for() -> None:
    found = [http_check(http, ["uvicorn"]) for http in (HttpSettings(), HttpSettings(enabled=True))]
    assert [check.verdict for check in found] == [Verdict.WARN, Verdict.FAIL]
    assert {check.advice for check in found} == {"pip install 'edge-rag[http]'"}
    assert http_check(HttpSettings(), []).detail == "127.0.0.1:7480 (http.address)"
    assert http_check(HttpSettings(enabled=False), ["uvicorn"]).verdict is Verdict.OK


def test_a_missing_model_fails_the_command_and_is_named(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_MODELS__DIRECTORY", str(tmp_path))
    result = runner.invoke(main, ["doctor", "--json", "--data-dir", str(tmp_path), "--server", f"unix:{tmp_path}/s"])
    report = json.loads(result.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert (result.exit_code, report["ok"]) == (1, False)
    assert checks["embedder"]["verdict"] == "fail"
    assert "model 'multilingual-e5-small' does not exist" in checks["embedder"]["detail"]
    assert checks["data"]["verdict"] == "ok"


def test_a_generator_that_no_longer_comes_along_is_a_warning_with_what_to_do(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", "quoter")
    result = runner.invoke(main, ["doctor", "--json", "--data-dir", str(tmp_path), "--server", f"unix:{tmp_path}/s"])
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert (checks["generator"]["verdict"], checks["generator named"]["verdict"]) == ("ok", "warn")
    assert checks["generator"]["detail"].startswith("none: ")
    assert "quoter" in checks["generator named"]["detail"]
    assert "edge-rag models add" in checks["generator named"]["advice"]


def test_a_wrong_setting_is_a_failed_check_and_not_a_crash(runner: CliRunner, tmp_path: Path) -> None:
    config = tmp_path / "edge-rag.toml"
    config.write_text("threds = 2\n")
    result = runner.invoke(main, ["doctor", "--config", str(config)])
    assert result.exit_code == 1
    assert "threds" in result.stdout


def test_colours_are_for_terminals_and_not_with_no_color(runner: CliRunner) -> None:
    wrong = ["doctor", "--config", "/nowhere/edge-rag.toml"]
    assert "\x1b[" in runner.invoke(main, wrong, color=True, env={"NO_COLOR": ""}).stdout
    assert "\x1b[" not in runner.invoke(main, wrong, color=True, env={"NO_COLOR": "1"}).stdout
    assert "\x1b[" not in runner.invoke(main, wrong, env={"NO_COLOR": ""}).stdout


def test_the_box_is_told_with_facts_rules_stages_memory_and_advice(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(main, ["doctor", "--json", "--data-dir", str(tmp_path), "--server", f"unix:{tmp_path}/s"])
    box = json.loads(result.stdout)["box"]
    assert set(box) == {"facts", "choice", "stages", "memory", "advice"}
    assert box["facts"]["memory_bytes"] >= box["facts"]["available_bytes"] > 0
    won = next(rule for rule in box["choice"]["rules"] if rule["holds"])
    assert won["profile"] == box["choice"]["profile"]
    assert all(condition["text"] for rule in box["choice"]["rules"] for condition in rule["conditions"])
    assert {stage["expected"] for stage in box["stages"].values()} == {"cpu"}
    memory = box["memory"]
    assert memory["planned_bytes"] == sum(item["bytes"] for item in memory["items"])
    assert memory["planned_bytes"] + memory["spare_bytes"] == memory["budget_bytes"]
    assert memory["items"][-1]["name"] == "KV pages"


def test_a_profile_that_a_board_cannot_meet_is_a_warning_or_a_failure_as_it_says(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_PROFILE", "jetson-thor")
    asked = ["doctor", "--data-dir", str(tmp_path), "--server", f"unix:{tmp_path}/s"]
    loud = runner.invoke(main, asked)
    assert "warn  embedder on  cpu instead of tensorrt: tensorrt: onnxruntime-gpu is not installed" in loud.stdout
    (tmp_path / "mine.toml").write_text('on_unavailable = "stop"\n')
    monkeypatch.setenv("EDGE_RAG_PROFILE_FILE", str(tmp_path / "mine.toml"))
    strict = runner.invoke(main, asked)
    assert strict.exit_code == 1
    assert "FAIL" in strict.stdout.upper()


def test_an_installation_that_lacks_a_library_is_told_and_not_a_crash(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "edge_rag.bootstrap.device", None)
    result = runner.invoke(main, ["doctor", "--json", "--data-dir", str(tmp_path), "--server", f"unix:{tmp_path}/s"])
    report = json.loads(result.stdout)
    board = next(check for check in report["checks"] if check["name"] == "board")
    assert (result.exit_code, board["verdict"], report["box"]) == (1, "fail", None)
