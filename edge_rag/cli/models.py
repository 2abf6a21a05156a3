"""``edge-rag models``: the model store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.exits import ExitCode
from edge_rag.cli.models_add import add
from edge_rag.cli.models_place import place, settings_of
from edge_rag.cli.terminal import emit, notes, visible
from edge_rag.errors import EdgeRagError

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings
    from edge_rag.core.status import DaemonStatus
    from edge_rag.store.model_store import StoredModel

_ROLES = ("embedder", "reranker", "generator")
_DEFAULT = "default"
_DAEMON_S = 2.0


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


@models.command(
    "list",
    epilog="""\b
Examples:
  edge-rag models list
  edge-rag models list --json | jq '.models[].name'
""",
)
@place
@options.as_json
def list_models(config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Lists the models that came along and those that were added; * marks what was chosen with `use`."""
    from edge_rag.store.roles import store_of

    found = store_of(settings_of(config, data_dir)).models()
    if as_json:
        emit({"models": [_model_object(model) for model in found]})
        return ExitCode.OK
    for model in found:
        click.echo(visible(_line(model)))
    return ExitCode.OK


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
    from edge_rag.store.roles import store_of

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
    from edge_rag.runtime.model_manifest import ModelRole
    from edge_rag.store.roles import explicit_model, store_of

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
    if problem:
        notes().print(visible(f"the running daemon keeps its model: {problem}"), style="yellow")
    if explicit is not None:
        notes().print(visible(f"but models.{role} = {explicit!r} is set, which wins"), style="yellow")
    return ExitCode.OK


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
    from edge_rag.store.roles import store_of

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
    from edge_rag.config.profile import probe
    from edge_rag.store.catalog import CATALOG_FILE, needs, read_catalog
    from edge_rag.store.catalog import recommend as fitting

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
    from edge_rag.runtime.model_manifest import ModelRole
    from edge_rag.store.roles import explicit_model

    names = {name for role in ModelRole if (name := explicit_model(settings, role)) is not None}
    if (report := _running(settings)) is not None:
        names.update(model.name for model in report.models)
    return frozenset(names)


def _running(settings: Settings) -> DaemonStatus | None:
    """Returns the report of the daemon that has the settings' data directory; None where there is none."""
    from edge_rag.client import Client, ClientError

    try:
        with Client(settings.listen, timeout_s=_DAEMON_S) as client:
            report = client.status()
    except ClientError:
        return None
    return report if Path(report.data_directory) == settings.data_directory else None


def _put_in_place(settings: Settings, name: str) -> tuple[bool, str]:
    """Has a running daemon use a generator; returns whether it does, and why not where it was asked and refused."""
    from edge_rag.client import Client, ClientError

    if _running(settings) is None:
        return False, ""
    try:
        with Client(settings.listen) as client, notes().status(f"putting {visible(name)} in place"):
            client.use_model("generator", name)
    except ClientError as error:
        return False, str(error)
    return True, ""


def _model_object(model: StoredModel) -> dict[str, Any]:
    """Returns a model as JSON; this shape is stable."""
    from edge_rag.store.model_store import memory_bytes

    manifest = model.manifest
    described = (
        {"role": None, "licence": None, "source": None, "bytes": None, "memory_bytes": None}
        if manifest is None
        else {
            "role": manifest.role.value,
            "licence": manifest.licence,
            "source": manifest.source,
            "bytes": sum(record.bytes for record in manifest.files.values()),
            "memory_bytes": memory_bytes(manifest),
        }
    )
    return {
        "name": model.name,
        **described,
        "folder": str(model.folder),
        "came_along": model.came_along,
        "chosen": model.chosen,
        "problem": model.problem,
    }


def _line(model: StoredModel) -> str:
    mark = "*" if model.chosen else " "
    if model.manifest is None:
        return f"{mark} {model.name:<28} {model.problem}"
    size = sum(record.bytes for record in model.manifest.files.values())
    where = "came along" if model.came_along else model.manifest.source
    return (
        f"{mark} {model.name:<28} {model.manifest.role.value:<10} {size / 2**20:8.1f} MiB  {model.manifest.licence}"
        f"  {where}"
    )
