"""Manual pages of the command line, one a command: ``edge-rag-models-add.1`` is that of ``edge-rag models add``.

Imports the command line and click only, so that a package for another machine can be made with them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Final

import click

import edge_rag
from edge_rag.cli.main import main as command_line
from scripts.generate_docs.command_tree import command_tree

_HEADING: Final = re.compile(r"^([A-Z][A-Za-z ]*):$")
_FILES: Final = {
    "/etc/edge-rag/edge-rag.toml": "Settings of the service; every key is explained there.",
    "/run/edge-rag/edge-rag.sock": "Socket of the service, which commands on this host use.",
    "/var/lib/edge-rag": "Documents, indexes and added models of the service.",
}


def man_pages(date: str) -> Mapping[str, str]:
    tree = dict(command_tree(command_line, ("edge-rag",)))
    return {f"{'-'.join(path)}.1": _page(path, tree, date) for path in tree}


def _page(path: tuple[str, ...], tree: Mapping[tuple[str, ...], click.Command], date: str) -> str:
    command = tree[path]
    context = click.Context(command, info_name=" ".join(path), **command_line.context_settings)
    title = "-".join(path)
    head = f'.TH {title.upper()} 1 "{date}" "edge-rag {edge_rag.__version__}" "User Commands"'
    summary = command.get_short_help_str(10_000).rstrip(".")
    usage = " ".join(_text(piece) for piece in command.collect_usage_pieces(context))
    lines = [head, ".SH NAME", f"{_text(title)} \\- {_text(summary)}", ".SH SYNOPSIS"]
    lines += [f"\\fB{_text(' '.join(path))}\\fR {usage}", ".SH DESCRIPTION", *_blocks(command.help or "")]
    lines += [".SH OPTIONS", *_options(command, context)]
    below = [other for other in tree if other[:-1] == path]
    if below:
        lines.append(".SH COMMANDS")
    for other in below:
        lines += [".TP", f"\\fB{_text('-'.join(other))}\\fR(1)", _text(tree[other].get_short_help_str(10_000))]
    lines += _sections(command.epilog or "")
    if len(path) == 1:
        lines.append(".SH FILES")
        for file, meaning in _FILES.items():
            lines += [".TP", f"\\fI{_text(file)}\\fR", _text(meaning)]
    elif "Exit codes:" not in (command.epilog or ""):
        lines += [".SH EXIT STATUS", "0 on success; \\fBedge\\-rag\\fR(1) lists the other codes."]
    above = [path[:-1]] if len(path) > 1 else []
    if len(path) > 2:
        above.insert(0, path[:1])
    if above:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_text('-'.join(other))}\\fR(1)" for other in above)]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f"\\fB{_text(record[0])}\\fR", _text(record[1]))


def _sections(epilog: str) -> Iterator[str]:
    """A block with a heading is a section; whatever has none is a note."""
    notes = []
    for block in _split(epilog):
        first, _, rest = block.removeprefix("\b\n").partition("\n")
        if heading := _HEADING.match(first):
            name = {"EXIT CODES": "EXIT STATUS", "EXAMPLE": "EXAMPLES"}.get(heading[1].upper(), heading[1].upper())
            yield f".SH {name}"
            yield from _literal(inspect.cleandoc(rest))
        else:
            notes.append(block)
    if notes:
        yield ".SH NOTES"
        yield from _blocks("\n\n".join(notes))


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs are filled, blocks after a backspace are kept as they are, as click does."""
    for number, block in enumerate(_split(text)):
        if block.startswith("\b\n"):
            lines = _literal(block.removeprefix("\b\n"))
        else:
            lines = iter([_text(" ".join(block.split()))])
        if number:
            yield ".PP"
        yield from lines


def _literal(text: str) -> Iterator[str]:
    yield ".nf"
    yield from (_text(line) for line in text.rstrip().split("\n"))
    yield ".fi"


def _split(text: str) -> list[str]:
    return [block for block in re.split(r"\n\s*\n", inspect.cleandoc(text).strip("\n")) if block.strip()]


def _text(text: str) -> str:
    """Escapes text; what stands in backticks is bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\0")
    escaped = escaped.replace("~", "\\(ti").replace("^", "\\(ha").replace('"', "\\(dq")
    escaped = re.sub("\0([^\0\n]+)\0", r"\\fB\1\\fR", escaped).replace("\0", "\\(ga")
    escaped = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
