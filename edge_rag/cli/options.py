"""Options that commands share.

Metadata on the command line: ``key=value``.

Settings of a collection as options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, TypeVar

import click

from edge_rag.cli.server_selection import chosen
from edge_rag.client import parse_filter
from edge_rag.client.channel import ADDRESS_VARIABLE, DEFAULT_ADDRESS
from edge_rag.core.documents.collection import CollectionSettings, RecencyBoost, ValueBoost
from edge_rag.core.documents.filters import Filter
from edge_rag.core.documents.metadata import MetadataValue, validate_metadata
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse
from edge_rag.errors import InvalidRequest

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, errors too.")
collection = click.option("--collection", default="default", show_default=True, metavar="NAME", help="Where to look.")
server = click.option(
    "--server",
    metavar="HOST:PORT",
    envvar=ADDRESS_VARIABLE,
    callback=chosen,
    help=f"Daemon to call; also unix:PATH. [env: {ADDRESS_VARIABLE}; default: {DEFAULT_ADDRESS}, else the paired box "
    "that is found]",
)
timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give a call up after this long. [default: the daemon's limit]",
)
filter_text = click.option(
    "--filter",
    "filter_text",
    metavar="FILTER",
    help='Look only into documents that this holds for, for example \'year >= 2020 and tag in ("a", "b")\'. '
    "Fields are name, media_type, page, ingested_at and the keys of the metadata; = != < <= > >= in not in ~ has "
    'compare, and or not () combine. name ~ "pump*" is a beginning.',
)
questions = click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Take one question a line from a file, - for standard input; prints JSON lines in the same order.",
)
concurrency = click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Questions asked at once with --questions.",
)


def read_filter(text: str | None) -> Filter | None:
    """Returns the filter that --filter holds.

    Raises:
        ClientError: INVALID_ARGUMENT, points at the character that is wrong.
    """
    return None if text is None else parse_filter(text)


def connection(command: Command) -> Command:
    """Adds --server, --timeout and --json."""
    return server(timeout(as_json(command)))


def one_question(argument: str | None, questions_file: str | None) -> None:
    """Checks that there is either a question or a file of questions.

    Raises:
        click.UsageError: There is neither, or both.
    """
    if (argument is None) == (questions_file is None):
        raise click.UsageError("Give either one question or --questions FILE.")


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d.*)?")
_FLAGS = {"true": True, "false": False}


def metadata_of(pairs: Iterable[str], option: str = "--meta") -> dict[str, MetadataValue]:
    """Reads ``key=value`` pairs; a key given several times has all its values as tags.

    A value is a number, ``true`` or ``false``, or a date as ISO 8601 where it looks like one, and a text otherwise or
    in double quotes.

    Raises:
        click.BadParameter: A pair has no ``=``, or a key or value is unusable; names it.
    """
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        texts.setdefault(key.strip(), []).append(text.strip())
    values = {
        key: typed_value(several[0]) if len(several) == 1 else [_unquoted(text) for text in several]
        for key, several in texts.items()
    }
    try:
        return validate_metadata(values)
    except InvalidRequest as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def typed_value(text: str) -> str | int | float | bool | date:
    """Reads a value as ``metadata_of`` says."""
    if text in _FLAGS:
        return _FLAGS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if _MOMENT.fullmatch(text):
        with suppress(ValueError):
            return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    return _unquoted(text)


def shown_value(value: Any) -> str:
    """Returns a value of ``metadata_object`` for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


INGESTED_AT = "ingested_at"

_OPTIONS = (
    click.option("--description", metavar="TEXT", help="What it is for."),
    click.option("--dense-weight", type=click.FloatRange(0, 1000), help="Weight of the vector search. [default: 1]"),
    click.option("--lexical-weight", type=click.FloatRange(0, 1000), help="Weight of BM25. [default: 1]"),
    click.option("--fusion-k", type=click.FloatRange(1, 10_000), help="Evens out the first ranks. [default: 20]"),
    click.option("--chunk-tokens", type=click.IntRange(16, 8192), help="Size of passages, tokens. [default: 120]"),
    click.option(
        "--recency-half-life",
        type=click.FloatRange(0, 1_000_000, min_open=True),
        metavar="DAYS",
        help="Prefer what is recent; at this age half of the boost is left. [default: no preference]",
    ),
    click.option(
        "--recency-field",
        metavar="KEY",
        help=f"Metadata that holds the date, or {INGESTED_AT}. [default: {INGESTED_AT}]",
    ),
    click.option(
        "--recency-weight",
        type=click.FloatRange(0, 100, min_open=True),
        help="The most that is added to the factor 1. [default: 1]",
    ),
    click.option("--no-recency", is_flag=True, help="No longer prefer what is recent."),
    click.option(
        "--boost",
        "boosts",
        nargs=2,
        multiple=True,
        type=(str, click.FloatRange(0.01, 100)),
        metavar="KEY=VALUE FACTOR",
        help="Multiply scores of documents with this metadata; may be repeated, and replaces all boosts before.",
    ),
    click.option("--no-boosts", is_flag=True, help="No longer boost any value."),
    click.option(
        "--merge/--no-merge",
        default=None,
        help="Whether neighbouring passages that are found together become one. [default: no-merge]",
    ),
    click.option(
        "--drop-duplicates/--keep-duplicates",
        default=None,
        help="Whether one of several nearly equal passages stands for all. [default: drop]",
    ),
    click.option(
        "--offload",
        type=click.Choice([rule.value for rule in OffloadRule]),
        help="What of it may be sent to other machines for computing. [default: never]",
    ),
    click.option(
        "--kv-reuse",
        type=click.Choice([reuse.value for reuse in KvReuse]),
        help="What prompts take over of others' work: of equal beginnings, or of each passage, which is faster and "
        "approximate. [default: exact]",
    ),
)


def settings_options(command: Command) -> Command:
    """Adds the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SettingsGiven:
    """Options as they were given; None where one was not."""

    description: str | None
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
    def of(cls, given: dict[str, Any]) -> SettingsGiven:
        """Reads what click made of the options.

        Raises:
            click.UsageError: Options contradict each other, or a boost is none.
        """
        boosts = tuple(_boost(pair, factor) for pair, factor in given["boosts"])
        offload = None if given["offload"] is None else OffloadRule(given["offload"])
        settings = cls(**{**given, "boosts": boosts, "offload": offload})
        if settings.no_boosts and settings.boosts:
            raise click.UsageError("--boost and --no-boosts exclude each other.")
        if settings.no_recency and settings.recency_half_life is not None:
            raise click.UsageError("--recency-half-life and --no-recency exclude each other.")
        return settings

    def fields(self) -> set[str]:
        """Returns the fields of ``CollectionSettings`` that are given."""
        given = {
            "description": self.description is not None,
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
        """Returns settings with what was given in place of what was before.

        Raises:
            click.UsageError: A part of the preference for what is recent was given, and no half-life is known.
        """
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
            key = None if self.recency_field == INGESTED_AT else self.recency_field
        return RecencyBoost(
            key,
            recency.half_life_days if self.recency_half_life is None else self.recency_half_life,
            recency.weight if self.recency_weight is None else self.recency_weight,
        )


def _boost(pair: str, factor: float) -> ValueBoost:
    ((key, value),) = metadata_of([pair], "--boost").items()
    if isinstance(value, tuple):
        raise click.BadParameter(f"{pair!r} is not one value", param_hint="--boost")
    return ValueBoost(key, value, factor)
