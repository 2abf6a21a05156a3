"""``edge-rag collections``: Creates, lists, changes, moves and deletes collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import counted, emit, note, print_line, printable
from edge_rag.core.documents.collection import (
    BackendKind,
    CollectionInfo,
    CollectionSettings,
    RecencyBoost,
    ValueBoost,
)
from edge_rag.core.documents.synonyms import parse_synonyms
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest

Command = TypeVar("Command", bound=Callable[..., Any])

_EPILOG = """\b
Examples:
  edge-rag collections create boiler --description "Boiler house" --chunk-tokens 160
  edge-rag collections list
  edge-rag collections update boiler --recency-half-life 365 --recency-field created
  edge-rag collections update boiler --boost source=official 2 --lexical-weight 0.5
  edge-rag collections update boiler --synonyms synonyms.txt
  edge-rag collections move boiler --to milvus
  edge-rag collections delete boiler --yes
"""

_name = click.argument("name", metavar="NAME")

_INGESTED_AT = "ingested_at"

_SETTINGS_OPTIONS = (
    click.option("--description", metavar="TEXT", help="Description of the collection."),
    click.option("--title", metavar="TEXT", help="Name shown to people. [default: NAME]"),
    click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="KEY=TEXT",
        help="Keep a text with the collection; may be repeated; replaces all earlier labels.",
    ),
    click.option("--no-labels", is_flag=True, help="Remove all labels."),
    click.option(
        "--synonyms",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Words that mean the same, a line each: UPS = uninterruptible power supply. Replaces all earlier ones.",
    ),
    click.option("--no-synonyms", is_flag=True, help="Remove all synonyms."),
    click.option("--dense-weight", type=click.FloatRange(0, 1000), help="Weight of the vector search. [default: 1]"),
    click.option("--lexical-weight", type=click.FloatRange(0, 1000), help="Weight of BM25. [default: 1]"),
    click.option("--fusion-k", type=click.FloatRange(1, 10_000), help="Constant k of rank fusion. [default: 20]"),
    click.option("--chunk-tokens", type=click.IntRange(16, 8192), help="Size of a passage, tokens. [default: 120]"),
    click.option(
        "--recency-half-life",
        type=click.FloatRange(0, 1_000_000, min_open=True),
        metavar="DAYS",
        help="Boost recent documents; at this age the boost is halved. [default: no boost]",
    ),
    click.option(
        "--recency-field",
        metavar="KEY",
        help=f"Metadata key with the date, or {_INGESTED_AT}. [default: {_INGESTED_AT}]",
    ),
    click.option(
        "--recency-weight",
        type=click.FloatRange(0, 100, min_open=True),
        help="Maximum that recency adds to the factor 1. [default: 1]",
    ),
    click.option("--no-recency", is_flag=True, help="Remove the boost of recent documents."),
    click.option(
        "--boost",
        "boosts",
        nargs=2,
        multiple=True,
        type=(str, click.FloatRange(0.01, 100)),
        metavar="KEY=VALUE FACTOR",
        help="Multiply the scores of documents with this metadata; may be repeated; replaces all earlier boosts.",
    ),
    click.option("--no-boosts", is_flag=True, help="Remove all boosts of metadata values."),
    click.option(
        "--merge/--no-merge",
        default=None,
        help="Merge adjacent passages that are found together. [default: no-merge]",
    ),
    click.option(
        "--drop-duplicates/--keep-duplicates",
        default=None,
        help="Drop near-duplicate passages. [default: drop]",
    ),
    click.option(
        "--offload",
        type=click.Choice([rule.value for rule in OffloadRule]),
        help="Which of its content may be sent to remote machines. [default: never]",
    ),
    click.option(
        "--kv-reuse",
        type=click.Choice([reuse.value for reuse in KvReuse]),
        help="Which cached KV a prompt reuses: of equal prefixes, or of each passage, which is faster and approximate. "
        "[default: exact]",
    ),
)


def _settings_options(command: Command) -> Command:
    for option in reversed(_SETTINGS_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class _SettingsOptions:
    """The options of a collection's settings; None if an option is absent."""

    description: str | None
    title: str | None
    labels: Mapping[str, str]
    no_labels: bool
    synonyms: str | None
    no_synonyms: bool
    dense_weight: float | None
    lexical_weight: float | None
    fusion_k: float | None
    chunk_tokens: int | None
    recency_half_life: float | None
    recency_field: str | None
    recency_weight: float | None
    no_recency: bool
    boosts: tuple[ValueBoost, ...]
    no_boosts: bool
    merge: bool | None
    drop_duplicates: bool | None
    offload: OffloadRule | None
    kv_reuse: str | None

    @classmethod
    def parse(cls, given: dict[str, Any]) -> _SettingsOptions:
        """Converts click's parameters."""
        boosts = tuple(_parse_boost(pair, factor) for pair, factor in given["boosts"])
        offload = None if given["offload"] is None else OffloadRule(given["offload"])
        labels = dict(_parse_label(pair) for pair in given["labels"])
        synonyms = None if given["synonyms"] is None else _read_synonyms(given["synonyms"])
        settings = cls(**{**given, "boosts": boosts, "offload": offload, "labels": labels, "synonyms": synonyms})
        if settings.no_synonyms and settings.synonyms is not None:
            raise click.UsageError("--synonyms and --no-synonyms exclude each other.")
        if settings.no_labels and settings.labels:
            raise click.UsageError("--label and --no-labels exclude each other.")
        if settings.no_boosts and settings.boosts:
            raise click.UsageError("--boost and --no-boosts exclude each other.")
        if settings.no_recency and settings.recency_half_life is not None:
            raise click.UsageError("--recency-half-life and --no-recency exclude each other.")
        return settings

    def fields(self) -> set[str]:
        """Returns the fields of ``CollectionSettings`` that the options set."""
        given = {
            "description": self.description is not None,
            "title": self.title is not None,
            "labels": self.no_labels or bool(self.labels),
            "synonyms": self.no_synonyms or self.synonyms is not None,
            "fusion": any(value is not None for value in (self.dense_weight, self.lexical_weight, self.fusion_k)),
            "chunk_tokens": self.chunk_tokens is not None,
            "recency": self.no_recency or self._recency_given(),
            "boosts": self.no_boosts or bool(self.boosts),
            "merge_neighbours": self.merge is not None,
            "drop_duplicates": self.drop_duplicates is not None,
            "offload": self.offload is not None,
            "kv_reuse": self.kv_reuse is not None,
        }
        return {field for field, is_given in given.items() if is_given}

    def applied_to(self, before: CollectionSettings) -> CollectionSettings:
        """Returns ``before`` with the options applied."""
        fusion = before.fusion
        return CollectionSettings(
            description=before.description if self.description is None else self.description,
            fusion=replace(
                fusion,
                dense=fusion.dense if self.dense_weight is None else self.dense_weight,
                lexical=fusion.lexical if self.lexical_weight is None else self.lexical_weight,
                k=fusion.k if self.fusion_k is None else self.fusion_k,
            ),
            chunk_tokens=before.chunk_tokens if self.chunk_tokens is None else self.chunk_tokens,
            recency=self._recency(before.recency),
            boosts=() if self.no_boosts else self.boosts or before.boosts,
            merge_neighbours=before.merge_neighbours if self.merge is None else self.merge,
            drop_duplicates=before.drop_duplicates if self.drop_duplicates is None else self.drop_duplicates,
            offload=before.offload if self.offload is None else self.offload,
            kv_reuse=before.kv_reuse if self.kv_reuse is None else KvReuse(self.kv_reuse),
            title=before.title if self.title is None else self.title,
            labels={} if self.no_labels else self.labels or before.labels,
            synonyms="" if self.no_synonyms else before.synonyms if self.synonyms is None else self.synonyms,
        )

    def _recency_given(self) -> bool:
        return any(value is not None for value in (self.recency_half_life, self.recency_field, self.recency_weight))

    def _recency(self, before: RecencyBoost | None) -> RecencyBoost | None:
        if self.no_recency:
            return None
        if not self._recency_given():
            return before
        if before is None and self.recency_half_life is None:
            raise click.UsageError("--recency-field and --recency-weight need --recency-half-life.")
        recency = before or RecencyBoost(None, self.recency_half_life or 0.0)
        key = recency.key
        if self.recency_field is not None:
            key = None if self.recency_field == _INGESTED_AT else self.recency_field
        return RecencyBoost(
            key,
            recency.half_life_days if self.recency_half_life is None else self.recency_half_life,
            recency.weight if self.recency_weight is None else self.recency_weight,
        )


def _read_synonyms(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
        parse_synonyms(str(path), text)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--synonyms") from error
    except InvalidRequest as error:
        raise click.BadParameter(str(error), param_hint="--synonyms") from error
    return text


def _parse_label(pair: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not KEY=TEXT", param_hint="--label")
    return key, text


def _parse_boost(pair: str, factor: float) -> ValueBoost:
    ((key, value),) = options.parse_metadata([pair], "--boost").items()
    if isinstance(value, tuple):
        raise click.BadParameter(f"{pair!r} is not one value", param_hint="--boost")
    return ValueBoost(key, value, factor)


@click.group(cls=Group, epilog=_EPILOG)
def collections() -> None:
    """Creates, lists, changes, moves and deletes collections.

    Ingesting into a new name also creates a collection, which is deleted with its last document. A collection that was
    created or changed here exists until it is deleted. Over the network all but list and show need the role admin.
    """


@collections.command("create", epilog='\b\nExample:\n  edge-rag collections create boiler --description "Boiler house"')
@_name
@_settings_options
@options.connection
def create_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool, **given: Any) -> ExitCode:
    """Creates an empty collection."""
    settings_options = _SettingsOptions.parse(given)
    with options.open_client(server, timeout_s) as client:
        created = client.create_collection(name, settings_options.applied_to(CollectionSettings()))
    return _show(created, as_json)


@collections.command("list", epilog="\b\nExample:\n  edge-rag collections list --json")
@options.connection
def list_collections(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Lists all collections."""
    with options.open_client(server, timeout_s) as client:
        found = client.collections()
    if as_json:
        emit({"collections": [encode(info) for info in found]})
        return ExitCode.OK
    for info in found:
        description = f"  {info.settings.description}" if info.settings.description else ""
        print_line(
            f"{info.name}  ({counted(info.documents, 'document')}, {counted(info.chunks, 'passage')}){description}"
        )
    note(counted(len(found), "collection"), "dim")
    return ExitCode.OK


@collections.command("show", epilog="\b\nExample:\n  edge-rag collections show boiler")
@_name
@options.connection
def show_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Shows a collection with its settings."""
    with options.open_client(server, timeout_s) as client:
        found = client.collection(name)
    return _show(found, as_json)


@collections.command("update", epilog="\b\nExample:\n  edge-rag collections update boiler --merge --dense-weight 2")
@_name
@_settings_options
@options.connection
def update_collection(name: str, server: str | None, timeout_s: float | None, as_json: bool, **given: Any) -> ExitCode:
    """Changes the given settings and keeps the others.

    --chunk-tokens applies to documents ingested afterwards; ingest a document again to chunk it again.
    """
    settings_options = _SettingsOptions.parse(given)
    fields = settings_options.fields()
    if not fields:
        raise click.UsageError("Give at least one setting to change.")
    with options.open_client(server, timeout_s) as client:
        settings = settings_options.applied_to(client.collection(name).settings)
        changed = client.update_collection(name, settings, fields)
    return _show(changed, as_json)


@collections.command("move", epilog="\b\nExample:\n  edge-rag collections move boiler --to milvus")
@_name
@click.option(
    "--to",
    "backend",
    type=click.Choice(BackendKind, case_sensitive=False),
    required=True,
    help="On this machine (faiss), or in the configured Milvus server.",
)
@options.connection
def move_collection(
    name: str, backend: BackendKind, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Moves the index of a collection to another backend while it is in use.

    Nothing is embedded again. The old index is used until the new one is complete and verified.
    """
    with options.open_client(server, timeout_s) as client:
        moved = client.move_index(name, backend)
    if as_json:
        emit({"index": encode(moved)})
    else:
        from edge_rag.cli.output.status_text import index_line

        print_line(f"moved  {index_line(moved)}")
    return ExitCode.OK


@collections.command("delete", epilog="\b\nExample:\n  edge-rag collections delete boiler --yes")
@_name
@click.option("--yes", is_flag=True, help="Do not prompt.")
@options.connection
def delete_collection(name: str, yes: bool, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Deletes a collection with its documents, text, vectors and settings."""
    if as_json and not yes:
        raise click.UsageError("--json does not prompt; give --yes to delete.")
    with options.open_client(server, timeout_s) as client:
        if not yes:
            found = client.collection(name)
            question = f"Delete collection {name} with {counted(found.documents, 'document')} for good?"
            click.confirm(printable(question), abort=True, err=True)
        removed = client.delete_collection(name)
    if as_json:
        emit({"deleted": encode(removed)})
    else:
        print_line(f"deleted  {removed.name} ({counted(removed.documents, 'document')})")
    return ExitCode.OK


def _show(info: CollectionInfo, as_json: bool) -> ExitCode:
    shown = encode(info)
    if as_json:
        emit({"collection": shown})
        return ExitCode.OK
    settings = shown.pop("settings")
    defaults = encode(replace(info, settings=CollectionSettings()))["settings"]
    for key, value in shown.items():
        print_line(f"{key}: {'-' if value is None else options.format_value(value)}")
    for key, value in settings.items():
        mark = "" if value != defaults[key] else "  (default)"
        print_line(f"{key}: {_format(value)}{mark}")
    return ExitCode.OK


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(_format(each) for each in value) or "-"
    return "-" if value in (None, "") else options.format_value(value)
