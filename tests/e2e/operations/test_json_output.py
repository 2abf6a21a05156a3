import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import ROOT, SAMPLES, RunningDaemon

PAGE = (ROOT / "docs" / "reference" / "json-output.md").read_text()
FENCED = re.compile(r"\n\n((?:[^\n]+\n)+)\n```text\n(.*?)```", re.S)
SHAPES = {re.findall(r"`edge-rag ([a-z -]+)`", text)[-1]: shape for text, shape in FENCED.findall(PAGE)}
TOKEN = re.compile(r"\w+|\?|\[\]|[{},]")

Shape = dict[str, Any]


def parsed(text: str) -> Shape:
    tokens = TOKEN.findall(text)
    shape = taken(tokens)
    assert not tokens
    return shape


def taken(tokens: list[str]) -> Shape:
    assert tokens.pop(0) == "{"
    shape: Shape = {}
    while True:
        name = tokens.pop(0)
        optional = tokens[0] == "?" and bool(tokens.pop(0))
        array = tokens[0] == "[]" and bool(tokens.pop(0))
        inner = taken(tokens) if tokens[0] == "{" else None
        shape[name + ("?" if optional else "")] = [inner] if array else inner
        if tokens.pop(0) == "}":
            return shape


def check(shape: Any, value: Any, path: str) -> None:
    if value is None or shape is None:
        return
    if isinstance(shape, list):
        assert isinstance(value, list), path
        for each in value:
            check(shape[0], each, f"{path}[]")
        return
    assert isinstance(value, dict), path
    if len(shape) == 1 and next(iter(shape)).isupper():
        return
    required = {name for name in shape if not name.endswith("?")}
    allowed = {name.rstrip("?") for name in shape}
    assert required <= value.keys() <= allowed, f"{path}: {sorted(value)} instead of {sorted(allowed)}"
    for name, inner in shape.items():
        check(inner, value.get(name.rstrip("?")), f"{path}.{name}")


def printed(*arguments: str, server: str = "") -> Any:
    environment = {"EDGE_RAG_SERVER": server} if server else {}
    result = CliRunner(env=environment).invoke(main, [*arguments, "--json"])
    return json.loads(result.stdout.splitlines()[0] if arguments[0] == "audit" else result.stdout)


@pytest.mark.parametrize("command", sorted(SHAPES))
def test_a_shape_can_be_read_and_its_command_exists(command: str) -> None:
    assert parsed(SHAPES[command])
    found: click.Command | None = main
    for word in command.split(" --")[0].split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found is not None


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("ask", ("How often must the pump bearings be greased?",)),
        ("search", ("--limit", "2", "--explain", "bearings")),
        ("status", ()),
        ("usage", ()),
        ("docs list", ()),
        ("docs show", ("parts-list.md",)),
        ("collections list", ()),
        ("ingest", (str(SAMPLES / "parts-list.md"),)),
        ("ingest --no-wait", (str(SAMPLES / "parts-list.md"),)),
        ("jobs list", ()),
    ],
)
def test_a_command_prints_its_shape(daemon: RunningDaemon, command: str, arguments: tuple[str, ...]) -> None:
    check(parsed(SHAPES[command]), printed(*command.split(), *arguments, server=daemon.address), command)


def test_the_audit_log_prints_its_shape(daemon: RunningDaemon) -> None:
    printed("ask", "How often must the pump bearings be greased?", server=daemon.address)
    check(parsed(SHAPES["audit"]), printed("audit", "--limit", "1", server=daemon.address), "audit")


def test_commands_without_a_daemon_print_their_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGE_RAG_SERVER", "127.0.0.1:1")
    data = ("--data-dir", str(tmp_path / "data"))
    for command, arguments in (
        ("profile list", ()),
        ("profile show", ("cpu-x86",)),
        ("models list", data),
        ("models recommend", ()),
        ("tls init", data),
        ("tls client", ("ward-3", *data)),
        ("pair", ("--name", "ward-3", *data)),
        ("token create", ("--name", "ward-4", *data)),
        ("token list", data),
        ("token revoke", ("ward-4", *data)),
        ("doctor", data),
        ("ingest --dry-run", (str(SAMPLES),)),
        ("config check", ()),
        ("config show", ("listen",)),
        ("config set", ("--config", str(tmp_path / "edge-rag.toml"), "threads", "2")),
    ):
        check(parsed(SHAPES[command]), printed(*command.split(), *arguments), command)
