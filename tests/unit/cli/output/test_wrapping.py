import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.cli.main import COMMANDS, main
from edge_rag.cli.output.wrapping import WordWrap, width_of, wrapped

TEXTS = st.text(alphabet=" \nab漢é-", max_size=120)


@given(TEXTS, st.integers(4, 40), st.lists(st.integers(1, 9), max_size=30))
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken_or_lost(
    text: str, columns: int, sizes: list[int]
) -> None:
    wrap, pieces, rest = WordWrap(columns), "", text
    for size in (*sizes, len(text) or 1):
        pieces += wrap.feed(rest[:size])
        rest = rest[size:]
    shown = pieces + wrap.feed(rest) + wrap.end()
    assert shown.split() == text.split()
    assert shown == wrapped(text, columns)
    assert shown.count("\n") >= text.rstrip(" ").count("\n")
    for line in shown.split("\n"):
        assert width_of(line) <= columns or len(line.split()) == 1


def test_a_break_indents_and_without_a_width_nothing_changes() -> None:
    assert wrapped("   one two three", 11, "   ") == "   one two\n   three"
    assert wrapped("one two three", None) == "one two three"


@pytest.mark.parametrize("columns", [30, 60, 120])
def test_no_summary_in_a_help_is_cut(columns: int) -> None:
    def helps(group: click.Group, name: str, parent: click.Context | None = None) -> Iterator[str]:
        # A command keeps the names of the help option that the first context gives it.
        context = click.Context(group, parent, name, terminal_width=columns, **group.context_settings)
        yield group.get_help(context)
        for each in group.list_commands(context):
            command = group.get_command(context, each)
            if isinstance(command, click.Group):
                yield from helps(command, each, context)

    assert len(COMMANDS) > 20
    assert not any(
        "..." in line
        for text in helps(main, "edge-rag")
        for line in text.split("Examples:")[0].splitlines()
        if "[OPTIONS]" not in line and "[ARGS]" not in line
    )


def test_an_error_on_a_terminal_is_wrapped_at_words(tmp_path: Path) -> None:
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 40))
    variables = os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "edge_rag.cli.main", "status", "--server", "127.0.0.1:1"]
    assert subprocess.run(command, stderr=writing, env=variables, check=False).returncode == 3
    os.close(writing)
    lines = os.read(reading, 4096).decode().splitlines()
    os.close(reading)
    assert len(lines) > 2
    assert all(len(line) <= 40 for line in lines), lines
    assert " ".join(lines).startswith("edge-rag: no daemon answers at 127.0.0.1:1. Start one with")
