"""``edge-rag config``: Checks, shows and changes the settings of the daemon."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import emit, note, print_line

if TYPE_CHECKING:
    from pydantic import BaseModel

_file = click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-rag config check --config /etc/edge-rag.toml
  edge-rag config show generator
  edge-rag config set --config /etc/edge-rag.toml generator.max_slots 4
""",
)
def config() -> None:
    """Checks, shows and changes the settings of the daemon. Needs no running daemon."""


@config.command(epilog="\b\nExample:\n  edge-rag config check --config /etc/edge-rag.toml")
@_file
@options.as_json
def check(config: Path | None, as_json: bool) -> ExitCode:
    """Checks the file and the environment; exits with 2 and names the mistakes."""
    from edge_rag.config.settings import load_settings

    load_settings(config)
    if as_json:
        emit({"ok": True, "file": None if config is None else str(config)})
    else:
        note(f"{config or 'the environment'}: no mistakes")
    return ExitCode.OK


@config.command(epilog="\b\nExamples:\n  edge-rag config show\n  edge-rag config show limits --config edge-rag.toml")
@click.argument("key", required=False)
@_file
@click.option("--changed", is_flag=True, help="Only settings that are not at their default.")
@options.as_json
def show(key: str | None, config: Path | None, changed: bool, as_json: bool) -> ExitCode:
    """Shows the settings that a daemon has, all or those of KEY, and where each comes from."""
    from edge_rag.config.settings import load_settings, origin_of

    settings = load_settings(config)
    text = "" if config is None else config.read_text(encoding="utf-8")
    values = settings.model_dump(mode="json")
    shown = [
        {"key": ".".join(path), "value": value, "origin": origin_of(path, {}, config, text)}
        for path, value in _leaves(type(settings), values)
        if key is None or ".".join(path) == key or ".".join(path).startswith(f"{key}.")
    ]
    if not shown:
        raise _unknown(str(key))
    if changed:
        shown = [each for each in shown if each["origin"] != "default"]
    if as_json:
        emit({"settings": shown})
        return ExitCode.OK
    for each in shown:
        print_line(f"{each['key']} = {_toml(each['value'])}  # {each['origin']}")
    return ExitCode.OK


@config.command("set", epilog="\b\nExample:\n  edge-rag config set --config edge-rag.toml generator.max_slots 4")
@click.argument("key")
@click.argument("value")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", required=True, help="The file to change.")
@options.as_json
def set_value(key: str, value: str, config: Path, as_json: bool) -> ExitCode:
    """Sets KEY in a file, which keeps its comments; a file with a mistake is not written.

    A running daemon takes the value with SIGHUP or a restart; its log says which. VALUE is as in TOML; a text needs no
    quotes.
    """
    from edge_rag.config.settings import Settings, load_settings
    from edge_rag.config.unknown_keys import keys_of
    from edge_rag.core.atomic_file import replace_file

    if key not in {*keys_of(Settings)}:
        raise _unknown(key)
    before = config.read_text(encoding="utf-8") if config.exists() else ""
    after = _with_value(before, key, _toml(_parsed(value)))
    if _set(tomllib.loads(before), key, _parsed(value)) != tomllib.loads(after):
        raise click.ClickException(f"{config}: {key} has a form that this command does not change; edit the file")
    load_settings(config, text=after)
    replace_file(config, after.encode(), mode=config.stat().st_mode & 0o777 if config.exists() else 0o644)
    if as_json:
        emit({"file": str(config), "key": key, "value": _parsed(value)})
    else:
        note(f"{config}: {key} = {_toml(_parsed(value))}")
    return ExitCode.OK


def _leaves(model: type[BaseModel], values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    from pydantic import BaseModel

    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _leaves(section, values[name], (*path, name))
        else:
            yield (*path, name), values[name]


def _unknown(key: str) -> click.ClickException:
    from edge_rag.config.settings import Settings
    from edge_rag.config.unknown_keys import siblings, suggestion

    hint = suggestion(key, siblings(Settings, key.split(".")))
    return click.BadParameter(f"{key}: no such setting{hint}", param_hint="KEY")


def _parsed(value: str) -> Any:
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return value
    return document["value"] if len(document) == 1 else value


def _toml(value: Any) -> str:
    """Formats a value in TOML's notation; that of a setting without value is ``unset``, which TOML lacks."""
    import json

    if value is None:
        return "unset"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def _set(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    *sections, name = key.split(".")
    table = document
    for section in sections:
        table = table.setdefault(section, {})
    table[name] = value
    return document


def _with_value(text: str, key: str, value: str) -> str:
    """Returns a TOML file with another value of a key: on its line, in its section, or in a new section."""
    from edge_rag.config.unknown_keys import line_of

    section, _, name = key.rpartition(".")
    lines = text.splitlines()
    found = line_of(text, key.split("."))
    if found is not None:
        old = re.fullmatch(r"(\s*[^=]+=\s*)(?:\"[^\"]*\"|'[^']*'|[^#\"']*?)(\s*(?:#.*)?)", lines[found - 1])
        if old is not None:
            lines[found - 1] = f"{old[1]}{value}{old[2]}"
        return "\n".join(lines) + "\n"
    entry = f"{name} = {value}"
    header = line_of(text, section.split(".")) if section else 0
    if header is not None and (not section or re.match(r"\s*\[", lines[header - 1])):
        lines.insert(header, entry)
    else:
        lines += [*([""] if lines else []), f"[{section}]", entry]
    return "\n".join(lines) + "\n"
