"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from edge_rag.cli.server_selection import chosen
from edge_rag.client import parse_filter
from edge_rag.client.channel import ADDRESS_VARIABLE, DEFAULT_ADDRESS
from edge_rag.core.documents.filters import Filter

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
