"""``edge-rag collections``: documents that share an index and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from edge_rag.cli import options
from edge_rag.cli.commands.status import index_line
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.options import SettingsGiven, settings_options, shown_value
from edge_rag.cli.output.json import collection_object, index_object
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import Client
from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings

Command = TypeVar("Command", bound=Callable[..., Any])

_EPILOG = """\b
Examples:
  edge-rag collections create boiler --description "Boiler house" --chunk-tokens 160
  edge-rag collections list
  edge-rag collections update boiler --recency-half-life 365 --recency-field created
  edge-rag collections update boiler --boost source=official 2 --lexical-weight 0.5
  edge-rag collections move boiler --to milvus
  edge-rag collections delete boiler --yes
"""

_name = click.argument("name", metavar="NAME")


@click.group(epilog=_EPILOG)
def collections() -> None:
    """Makes, lists, shows, changes, moves and deletes collections.

    Ingesting into a name that does not exist makes a collection too; that one goes with its last document, while one
    that was created or changed here stays until it is deleted.
    """


@collections.command("create", epilog='\b\nExample:\n  edge-rag collections create boiler --description "Boiler house"')
@_name
@settings_options
@options.connection
def create_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool, **given: Any) -> ExitCode:
    """Makes an empty collection."""
    wanted = SettingsGiven.of(given)
    with Client(server, timeout_s=timeout_s) as client:
        made = client.create_collection(name, wanted.applied_to(CollectionSettings()))
    return _show(made, as_json)


@collections.command("list", epilog="\b\nExample:\n  edge-rag collections list --json")
@options.connection
def list_collections(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Lists all collections."""
    with Client(server, timeout_s=timeout_s) as client:
        found = client.collections()
    if as_json:
        emit({"collections": [collection_object(info) for info in found]})
        return ExitCode.OK
    for info in found:
        description = f"  {info.settings.description}" if info.settings.description else ""
        click.echo(visible(f"{info.name}  ({info.documents} documents, {info.chunks} passages){description}"))
    notes().print(f"{len(found)} collections", style="dim")
    return ExitCode.OK


@collections.command("show", epilog="\b\nExample:\n  edge-rag collections show boiler")
@_name
@options.connection
def show_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Shows a collection with its settings."""
    with Client(server, timeout_s=timeout_s) as client:
        found = client.collection(name)
    return _show(found, as_json)


@collections.command("update", epilog="\b\nExample:\n  edge-rag collections update boiler --merge --dense-weight 2")
@_name
@settings_options
@options.connection
def update_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool, **given: Any) -> ExitCode:
    """Changes the settings that are given; the others stay as they are.

    Another --chunk-tokens holds for documents that are ingested afterwards; ingest a document again to cut it anew.
    """
    wanted = SettingsGiven.of(given)
    fields = wanted.fields()
    if not fields:
        raise click.UsageError("Give at least one setting to change.")
    with Client(server, timeout_s=timeout_s) as client:
        settings = wanted.applied_to(client.collection(name).settings)
        changed = client.update_collection(name, settings, fields)
    return _show(changed, as_json)


@collections.command("move", epilog="\b\nExample:\n  edge-rag collections move boiler --to milvus")
@_name
@click.option(
    "--to",
    "home",
    type=click.Choice(BackendKind, case_sensitive=False),
    required=True,
    help="On this box (faiss), or in the Milvus of the daemon's configuration.",
)
@options.connection
def move_collection(
    name: str, home: BackendKind, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Has a collection's vectors indexed elsewhere, while it goes on answering.

    Nothing is embedded again. The collection stays where it is unless all of it arrived and is found there.
    """
    with Client(server, timeout_s=timeout_s) as client:
        moved = client.move_index(name, home)
    if as_json:
        emit({"index": index_object(moved)})
    else:
        click.echo(visible(f"moved  {index_line(moved)}"))
    return ExitCode.OK


@collections.command("delete", epilog="\b\nExample:\n  edge-rag collections delete boiler --yes")
@_name
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.connection
def delete_collection(name: str, yes: bool, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Deletes a collection with its documents, text, vectors and settings."""
    if as_json and not yes:
        raise click.UsageError("--json does not ask; give --yes to delete.")
    with Client(server, timeout_s=timeout_s) as client:
        if not yes:
            found = client.collection(name)
            question = f"Delete collection {name} with {found.documents} documents for good?"
            click.confirm(visible(question), abort=True, err=True)
        removed = client.delete_collection(name)
    if as_json:
        emit({"deleted": collection_object(removed)})
    else:
        click.echo(visible(f"deleted  {removed.name} ({removed.documents} documents)"))
    return ExitCode.OK


def _show(info: CollectionInfo, as_json: bool) -> ExitCode:
    shown = collection_object(info)
    if as_json:
        emit({"collection": shown})
        return ExitCode.OK
    settings = shown.pop("settings")
    plain = collection_object(replace(info, settings=CollectionSettings()))["settings"]
    for key, value in shown.items():
        click.echo(visible(f"{key}: {'-' if value is None else shown_value(value)}"))
    for key, value in settings.items():
        mark = "" if value != plain[key] else "  (default)"
        click.echo(visible(f"{key}: {_line(value)}{mark}"))
    return ExitCode.OK


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_line(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_line(each) for each in value) or "-"
    return "-" if value in (None, "") else shown_value(value)
