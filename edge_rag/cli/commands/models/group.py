"""``edge-rag models``: the model store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.commands.models.add import add
from edge_rag.cli.commands.models.list import list_models, place, running_daemon, settings_of
from edge_rag.cli.commands.models.use import use
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.errors import EdgeRagError

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings


@click.group(
    epilog="""\b
Examples:
  edge-rag models recommend
  edge-rag models add hf:Qwen/Qwen2.5-0.5B-Instruct
  edge-rag models use generator qwen2.5-0.5b-instruct
  edge-rag models list
"""
)
def models() -> None:
    """Adds models, chooses what fills each role, and checks what is there; needs no daemon."""


models.add_command(add)
models.add_command(list_models)
models.add_command(use)


@models.command(
    epilog="""\b
Examples:
  edge-rag models verify
  edge-rag models verify qwen2.5-0.5b-instruct --json
"""
)
@click.argument("name", required=False)
@place
@options.as_json
def verify(name: str | None, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Reads every byte of one model, or of all, and compares it with what the manifest says."""
    from edge_rag.model_store.roles import store_of

    store = store_of(settings_of(config, data_dir))
    names = [model.name for model in store.models()] if name is None else [name]
    problems: dict[str, str] = {}
    for checked in names:
        try:
            store.verify(checked)
        except EdgeRagError as error:
            if name is not None:
                raise
            problems[checked] = str(error)
        if not as_json:
            click.echo(visible(f"{checked}: {problems.get(checked, 'every byte as in its manifest')}"))
    if as_json:
        emit({"ok": not problems, "models": [{"name": n, "problem": problems.get(n, "")} for n in names]})
    return ExitCode.FAILURE if problems else ExitCode.OK


@models.command(
    epilog="""\b
Examples:
  edge-rag models remove qwen2.5-0.5b-instruct
"""
)
@click.argument("name")
@place
@options.as_json
def remove(name: str, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Deletes a model; not one that fills a role."""
    from edge_rag.model_store.roles import store_of

    settings = settings_of(config, data_dir)
    store_of(settings).remove(name, _needed(settings))
    if as_json:
        emit({"removed": name})
    else:
        notes().print(visible(f"{name} was removed"), style="dim")
    return ExitCode.OK


@models.command(
    epilog="""\b
Examples:
  edge-rag models recommend
  edge-rag models recommend --memory-gib 4 --json
"""
)
@click.option("--memory-gib", type=click.FloatRange(min=0.1), help="For a board with this much, instead of this one.")
@place
@options.as_json
def recommend(memory_gib: float | None, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Says which models of the catalogue fit this box, largest first, and how to add them."""
    from edge_rag.device.probe import probe
    from edge_rag.model_store.catalog import CATALOG_FILE, needs, read_catalog
    from edge_rag.model_store.catalog import recommend as fitting

    settings = settings_of(config, data_dir)
    available = probe().available_bytes if memory_gib is None else int(memory_gib * (1 << 30))
    found = fitting(read_catalog(settings.models.directory / CATALOG_FILE), available)
    if as_json:
        chosen = [
            entry.model_dump(exclude={"shape"}) | {"needs": asdict(needs(entry)), "command": _command(entry)}
            for entry in found
        ]
        emit({"available_bytes": available, "models": chosen})
        return ExitCode.OK
    notes().print(f"{available / (1 << 30):.1f} GiB can be used", style="dim")
    for entry in found:
        size = needs(entry)
        click.echo(
            f"{entry.name}  {entry.precision}, {size.memory_bytes >> 20} MiB in memory, {size.disk_bytes >> 20} MiB on"
            f" disk, licence {entry.licence}\n    {entry.checked}\n    {_command(entry)}"
        )
    return ExitCode.OK


def _command(entry: Any) -> str:
    if not entry.source.startswith("hf:"):
        return f"edge-rag models use generator {entry.name}"
    revision = "" if entry.revision == "main" else f"@{entry.revision}"
    return f"edge-rag models add {entry.source}{revision} --precision {entry.precision} --name {entry.name}"


def _needed(settings: Settings) -> frozenset[str]:
    """Returns the models that settings name or a running daemon has open."""
    from edge_rag.model_store.roles import explicit_model
    from edge_rag.runtime.model_folder.manifest import ModelRole

    names = {name for role in ModelRole if (name := explicit_model(settings, role)) is not None}
    if (report := running_daemon(settings)) is not None:
        names.update(model.name for model in report.models)
    return frozenset(names)
