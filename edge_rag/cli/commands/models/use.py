"""``edge-rag models use``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.commands.models.list import place, running_daemon, settings_of
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings

_ROLES = ("embedder", "reranker", "generator")
_DEFAULT = "default"


@click.command(
    epilog="""\b
Examples:
  edge-rag models use generator qwen2.5-0.5b-instruct
  edge-rag models use generator default       # what came along
"""
)
@click.argument("role", type=click.Choice(_ROLES))
@click.argument("name")
@place
@options.as_json
def use(role: str, name: str, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Chooses the model for a role, after checking all of it. A model named in the settings still wins.

    A running daemon puts a generator in place at once, while questions go on being answered. Other roles change when it
    starts next.
    """
    from edge_rag.model_store.roles import explicit_model, store_of
    from edge_rag.runtime.model_folder.manifest import ModelRole

    settings = settings_of(config, data_dir)
    store, wanted = store_of(settings), ModelRole(role)
    if name == _DEFAULT:
        store.use_default(wanted)
    else:
        store.use(wanted, name)
    explicit = explicit_model(settings, wanted)
    in_place, problem = False, ""
    if wanted is ModelRole.GENERATOR and explicit is None:
        in_place, problem = _put_in_place(settings, settings.models.generator if name == _DEFAULT else name)
    if as_json:
        chosen = None if name == _DEFAULT else name
        emit({"role": role, "name": chosen, "overridden_by": explicit, "in_place": in_place, "problem": problem})
        return ExitCode.OK
    when = "in use from now on" if in_place else "when the daemon starts next"
    notes().print(visible(f"{role}: {'what came along' if name == _DEFAULT else name}, {when}"), style="dim")
    if wanted is ModelRole.EMBEDDER:
        notes().print("the daemon then embeds every stored passage anew before it serves", style="yellow")
    if problem:
        notes().print(visible(f"the running daemon keeps its model: {problem}"), style="yellow")
    if explicit is not None:
        notes().print(visible(f"but models.{role} = {explicit!r} is set, which wins"), style="yellow")
    return ExitCode.OK


def _put_in_place(settings: Settings, name: str) -> tuple[bool, str]:
    """Has a running daemon use a generator; returns whether it does, and why not where it was asked and refused."""
    from edge_rag.client import Client, ClientError

    if running_daemon(settings) is None:
        return False, ""
    try:
        with (
            Client(settings.local_listen or settings.listen) as client,
            notes().status(f"putting {visible(name)} in place"),
        ):
            client.use_model("generator", name)
    except ClientError as error:
        return False, str(error)
    return True, ""
