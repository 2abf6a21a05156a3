"""``edge-rag token``: Creates, lists and revokes access tokens of other machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import emit, note, output_console, printable
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.query import Priority
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest

if TYPE_CHECKING:
    from edge_rag.access.tokens import Token, TokenFile

_QUOTA = re.compile(r"(\d{1,9})\s*(requests/min|tokens/min|at once)")

Command = TypeVar("Command", bound=Callable[..., Any])


def identity_options(command: Command) -> Command:
    """Adds the options that describe an identity and the life of its token."""
    options_in_order = (
        click.option(
            "--name", required=True, metavar="NAME", help="Name of the client; fair shares and usage are counted by it."
        ),
        click.option(
            "--roles",
            default="reader",
            show_default=True,
            metavar="ROLES",
            help="reader, writer, peer, admin; comma-separated.",
        ),
        click.option("--collections", metavar="NAMES", help="Allowed collections, comma-separated. [default: all]"),
        click.option(
            "--priority-max",
            type=click.Choice([priority.name.lower() for priority in Priority]),
            default="interactive",
            show_default=True,
            help="Highest priority class of its requests.",
        ),
        click.option("--quota", metavar="QUOTA", help='For example "60 requests/min, 20000 tokens/min, 2 at once".'),
        click.option(
            "--days", type=click.IntRange(1, 36500), metavar="N", help="Days until it expires. [default: never]"
        ),
    )
    for option in reversed(options_in_order):
        command = option(command)
    return command


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-rag token create --name ward-3
  edge-rag token list
  edge-rag token revoke ward-3
""",
)
def token() -> None:
    """Creates, lists and revokes access tokens of other machines."""


@token.command(
    epilog="""\b
Examples:
  edge-rag token create --name ward-3
  edge-rag token create --name scanner --roles writer --collections manuals,sheets
  edge-rag token create --name kiosk --priority-max normal --quota "60 requests/min, 20000 tokens/min, 2 at once"
  edge-rag token create --name guest --days 7 > guest.token
"""
)
@identity_options
@options.config_options
@options.as_json
def create(
    name: str,
    roles: str,
    collections: str | None,
    priority_max: str,
    quota: str | None,
    days: int | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Creates a token and prints it once; only its hash is stored. A running daemon accepts it at once."""
    from edge_rag.access.tokens import new_token

    identity = identity_of(name, roles, collections, priority_max, quota)
    now = datetime.now(UTC)
    made, text = new_token(identity, now, None if days is None else now + timedelta(days=days))
    _tokens(config, data_dir).add(made)
    if as_json:
        emit({**_token_json(made), "token": text})
        return ExitCode.OK
    click.echo(text)
    note(f"{name}: {format_rights(identity)}. It is not shown again.", "dim")
    return ExitCode.OK


@token.command("list", epilog="\b\nExamples:\n  edge-rag token list\n  edge-rag token list --json\n")
@options.config_options
@options.as_json
def list_tokens(config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Lists the tokens with their rights."""
    tokens = _tokens(config, data_dir).tokens()
    if as_json:
        emit({"tokens": [_token_json(known) for known in tokens]})
        return ExitCode.OK
    from rich.table import Table

    table = Table("name", "rights", "made", "expires", box=None, pad_edge=False)
    now = datetime.now(UTC)
    for known in tokens:
        ends = "never" if known.expires is None else f"{known.expires.astimezone():%Y-%m-%d}"
        expired = known.expires is not None and known.expires <= now
        made = f"{known.created.astimezone():%Y-%m-%d}"
        table.add_row(
            printable(known.identity.name),
            format_rights(known.identity),
            made,
            f"{ends} (expired)" if expired else ends,
        )
    output_console().print(table)
    return ExitCode.OK


@token.command(epilog="\b\nExamples:\n  edge-rag token revoke guest\n")
@click.argument("name")
@options.config_options
@options.as_json
def revoke(name: str, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Revokes a token; a running daemon refuses it from the next call on."""
    revoked = _tokens(config, data_dir).revoke(name)
    if as_json:
        emit(_token_json(revoked))
    else:
        note(f"{name}: revoked", "dim")
    return ExitCode.OK


def identity_of(name: str, roles: str, collections: str | None, priority_max: str, quota: str | None) -> Identity:
    """Returns the identity that the options describe."""
    from edge_rag.access.tokens import checked_identity

    try:
        parsed_roles = frozenset(Role(role) for role in _split(roles))
    except ValueError as error:
        raise click.BadParameter("must be of reader, writer, peer and admin", param_hint="--roles") from error
    allowed = None if collections is None else frozenset(_split(collections))
    try:
        return checked_identity(Identity(name, parsed_roles, allowed, Priority[priority_max.upper()], _quota(quota)))
    except InvalidRequest as error:
        raise click.BadParameter(error.problem, param_hint=f"--{error.field}") from error


def _quota(text: str | None) -> Quota:
    found: dict[str, int] = {}
    for part in _split(text or ""):
        match = _QUOTA.fullmatch(part)
        if match is None:
            raise click.BadParameter(
                f"{part!r} is none of `N requests/min`, `N tokens/min`, `N at once`", param_hint="--quota"
            )
        found[match[2]] = int(match[1])
    return Quota(found.get("requests/min"), found.get("tokens/min"), found.get("at once"))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _tokens(config: Path | None, data_dir: Path | None) -> TokenFile:
    from edge_rag.access.tokens import TokenFile
    from edge_rag.config.paths import token_path

    settings = options.read_settings(config, data_dir)
    return TokenFile(settings.access.tokens or token_path(settings.data_directory))


def format_rights(identity: Identity) -> str:
    """Formats the rights of an identity."""
    allowed = "all collections" if identity.collections is None else ", ".join(sorted(identity.collections))
    quota = identity.quota
    bounds = [
        f"{bound} {unit}"
        for bound, unit in (
            (quota.requests_per_minute, "requests/min"),
            (quota.tokens_per_minute, "tokens/min"),
            (quota.concurrent_requests, "at once"),
        )
        if bound is not None
    ]
    ceiling = identity.priority_ceiling
    if ceiling is not Priority.INTERACTIVE:
        bounds.append(f"at most {ceiling.name.lower()}")
    roles = ", ".join(sorted(role.value for role in identity.roles))
    return f"{roles} of {allowed}{'; ' if bounds else ''}{', '.join(bounds)}"


def _token_json(known: Token) -> dict[str, Any]:
    expires = None if known.expires is None else known.expires.isoformat()
    return {**encode(known.identity), "created": known.created.isoformat(), "expires": expires}
