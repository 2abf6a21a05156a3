"""Options, metadata arguments and connections that commands share.

Importing this module imports neither gRPC nor the settings: what needs them imports them when it is called, so that
``--help`` and commands that call no daemon start at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from edge_rag.core.address import ADDRESS_VARIABLE, COLLECTION_VARIABLE, DEFAULT_ADDRESS

if TYPE_CHECKING:
    from edge_rag.client import Client
    from edge_rag.config.settings import Settings
    from edge_rag.core.documents.filters import Filter
    from edge_rag.core.documents.metadata import MetadataValue
    from edge_rag.core.monitoring.status import DaemonStatus

Command = TypeVar("Command", bound=Callable[..., Any])

_STATUS_TIMEOUT_S: Final = 2.0


def _select_server(context: click.Context, _: click.Parameter, given: str | None) -> str | None:
    if given is not None or context.resilient_parsing or context.params.get("dry_run"):
        return given
    from edge_rag.cli.server_selection import select_server

    return select_server()


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, errors too.")
_OF_TOKEN = "the only one of the paired token, else `default`"
collection = click.option(
    "--collection", metavar="NAME", help=f"Collection to search. [env: {COLLECTION_VARIABLE}; default: {_OF_TOKEN}]"
)
target_collection = click.option(
    "--collection", metavar="NAME", help=f"Target collection. [env: {COLLECTION_VARIABLE}; default: {_OF_TOKEN}]"
)
server = click.option(
    "--server",
    metavar="HOST:PORT",
    envvar=ADDRESS_VARIABLE,
    callback=_select_server,
    help=f"Daemon to call; also unix:PATH. [env: {ADDRESS_VARIABLE}; default: the Unix socket of the daemon on this "
    f"host, else the paired server, at its last address or discovered, else {DEFAULT_ADDRESS}]",
)
timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of a call. [default: the daemon's limit]",
)
filter_text = click.option(
    "--filter",
    "filter_text",
    metavar="FILTER",
    help='Search only documents that match, for example \'year >= 2020 and tag in ("a", "b")\'. '
    "Fields are name, media_type, page, ingested_at and the metadata keys. Operators: = != < <= > >= in not in ~ has, "
    'and or not (). name ~ "pump*" matches a prefix.',
)
questions = click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Read one question per line from a file, - for standard input; prints JSON lines in the same order.",
)
concurrency = click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Questions sent concurrently with --questions.",
)


def verbosity(command: Command) -> Command:
    verbose = click.option("-v", "--verbose", is_flag=True, help="Show times, as on a terminal, and the request id.")
    quiet = click.option("-q", "--quiet", is_flag=True, help="Print only results and errors.")
    return verbose(quiet(command))


def read_filter(text: str | None) -> Filter | None:
    if text is None:
        return None
    from edge_rag.client import parse_filter

    return parse_filter(text)


def note_missing_fields(client: Client, collection: str, filter_: Filter | None) -> None:
    """Notes the metadata fields of a filter that found nothing which no document of a collection has."""
    from edge_rag.cli.output.terminal import note
    from edge_rag.client import SearchOptions
    from edge_rag.core.documents.filters import MetadataField, Present, metadata_keys

    for key in sorted(metadata_keys(filter_) if filter_ is not None else ()):
        present = SearchOptions(collection=collection, filter=Present(MetadataField(key)), limit=1, rerank=False)
        if not client.search(key, present).hits:
            note(f"no document of collection {collection} has the metadata field {key!r}", "yellow")


def connection(command: Command) -> Command:
    """Adds --server, --timeout and --json, and gives a command without --collection the default of its server."""

    @wraps(command)
    def with_collection(*arguments: Any, **options: Any) -> Any:
        if "collection" in options and options["collection"] is None:
            options["collection"] = default_collection(options["server"])
        return command(*arguments, **options)

    return cast(Command, server(timeout(as_json(with_collection))))


def default_collection(server: str | None) -> str:
    """Returns the collection of a command that is given none.

    It is that of EDGE_RAG_COLLECTION, else the only one that the token for the server is for, else ``default``.
    """
    from edge_rag.client.channel import server_address
    from edge_rag.client.credentials import KnownServers
    from edge_rag.core.limits.request_fields import DEFAULT_COLLECTION

    if named := os.environ.get(COLLECTION_VARIABLE):
        return named
    known = KnownServers().find(server_address(server))
    return DEFAULT_COLLECTION if known is None or known.collection is None else known.collection


def config_options(command: Command) -> Command:
    config = click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
    data_dir = click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="The data directory.")
    return config(data_dir(command))


def read_settings(config: Path | None, data_dir: Path | None) -> Settings:
    from edge_rag.config.settings import load_settings

    return load_settings(config, {} if data_dir is None else {"data_directory": data_dir})


def open_client(server: str | None, timeout_s: float | None = None, retry_s: float | None = None) -> Client:
    """Returns a client of a daemon.

    Args:
        server: HOST:PORT or unix:PATH; None for the default.
        timeout_s: Time limit of a call, seconds; None for the daemon's.
        retry_s: How long to retry calls that the daemon refuses because it is busy, seconds; None for the client's
            default.
    """
    from edge_rag.client import Client, RetryPolicy

    if retry_s is None:
        return Client(server, timeout_s=timeout_s)
    return Client(server, timeout_s=timeout_s, retry=RetryPolicy(max_backoff_s=retry_s))


def local_address(settings: Settings) -> str:
    from edge_rag.cli.server_selection import answering
    from edge_rag.config.paths import socket_path

    own = answering([socket_path(settings.data_directory)])
    return own or settings.local_listen or settings.listen


def running_daemon(settings: Settings) -> DaemonStatus | None:
    """Returns the status of the daemon that uses the settings' data directory, None if none is running."""
    from edge_rag.client import ClientError

    try:
        with open_client(local_address(settings), _STATUS_TIMEOUT_S) as client:
            status = client.status()
    except ClientError:
        return None
    return status if Path(status.data_directory) == settings.data_directory else None


def require_one_question(argument: str | None, questions_file: str | None) -> None:
    if (argument is None) == (questions_file is None):
        raise click.UsageError("Give either one question or --questions FILE.")


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d.*)?")
_FLAGS = {"true": True, "false": False}


def parse_metadata(pairs: Iterable[str], option: str = "--meta") -> dict[str, MetadataValue]:
    """Parses ``key=value`` pairs; a repeated key gets all its values as tags.

    A value is a number, ``true``, ``false`` or an ISO 8601 date if it has that form; otherwise, or in double quotes, it
    is text.
    """
    from edge_rag.core.documents.metadata import validate_metadata
    from edge_rag.errors import InvalidRequest

    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        texts.setdefault(key.strip(), []).append(text.strip())
    values = {
        key: _parse_value(several[0]) if len(several) == 1 else [_unquoted(text) for text in several]
        for key, several in texts.items()
    }
    try:
        return validate_metadata(values)
    except InvalidRequest as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def _parse_value(text: str) -> str | int | float | bool | date:
    if text in _FLAGS:
        return _FLAGS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if _MOMENT.fullmatch(text):
        with suppress(ValueError):
            return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    return _unquoted(text)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text
