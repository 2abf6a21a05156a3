import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
GUIDES = "\n".join([README, *(path.read_text() for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md")])])
FILES = frozenset({"questions.txt", "report.schema.json", "monday.edge-rag", "ca.pem", "ward-3.token"})


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(main))


SHOWN = re.findall(r"^edge-rag .*$", "\n".join(re.findall(r"```sh\n(.*?)```", GUIDES, re.S)), re.M)
MENTIONED = set(re.findall(r"`(?:\S*/)?(edge-rag [a-z][^`]*)`", GUIDES))


def examples() -> Iterator[str]:
    yield from SHOWN
    yield from MENTIONED
    for command in (main, *ALL.values()):
        lines = (command.epilog or "").replace("\\\n", "")
        yield from re.findall(r"^  (edge-rag .*)$", lines, re.M)


def command_words(example: str) -> list[str]:
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|&<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = list(lexer)
    ends = [index for index, word in enumerate(words) if set(word) <= set("|&<>")]
    if not ends:
        return words
    of_standard_error = words[ends[0]].startswith(">") and words[ends[0] - 1] == "2"
    return words[: ends[0] - of_standard_error]


@pytest.mark.parametrize("example", sorted(set(examples())))
def test_an_example_names_commands_and_options_that_exist(example: str) -> None:
    words = command_words(example)[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        assert words, f"{example}: no command"
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"{example}: no command {name}"
        command = found
    arguments = [str(ROOT / "README.md") if word in FILES else word for word in words]
    try:
        command.make_context("edge-rag", arguments, **main.context_settings).close()
    except click.MissingParameter:
        assert example in MENTIONED, "only prose may leave arguments out"


def test_there_are_examples_of_every_command_in_the_documents() -> None:
    shown = {example.split()[1] for example in SHOWN}
    assert shown == set(COMMANDS)


@pytest.mark.parametrize("path", [(), *ALL], ids=" ".join)
def test_every_command_has_help_with_examples(runner: CliRunner, path: tuple[str, ...]) -> None:
    result = runner.invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"edge-rag {' '.join(path)}".strip() in result.stdout


@pytest.mark.parametrize(
    "path",
    # The standard output of `edge-rag mcp` is JSON in any case: messages of its protocol.
    [path for path, command in ALL.items() if not isinstance(command, click.Group) and path != ("mcp",)],
    ids=" ".join,
)
def test_every_command_speaks_json(path: tuple[str, ...]) -> None:
    assert "--json" in {option for parameter in ALL[path].params for option in parameter.opts}


@pytest.mark.parametrize("text", [README, main.epilog or ""], ids=["readme", "help"])
def test_every_exit_code_is_explained(text: str) -> None:
    for code in ExitCode:
        assert re.search(rf"^(?:\| |  ){code.value}\s", text, re.M), code


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_help_of_each(name: str) -> None:
    assert COMMANDS[name].help == ALL[(name,)].get_short_help_str(1000)
