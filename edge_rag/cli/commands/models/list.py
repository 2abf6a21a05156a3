"""``edge-rag models list``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.commands.models.models_place import place, settings_of
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, visible

if TYPE_CHECKING:
    from edge_rag.model_store.store import StoredModel
    from edge_rag.runtime.model_folder.manifest import ModelManifest


@click.command(
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
    from edge_rag.model_store.roles import store_of

    found = store_of(settings_of(config, data_dir)).models()
    if as_json:
        emit({"models": [_model_object(model) for model in found]})
        return ExitCode.OK
    for model in found:
        click.echo(visible(_line(model)))
    return ExitCode.OK


def _model_object(model: StoredModel) -> dict[str, Any]:
    """Returns a model as JSON; this shape is stable."""
    from edge_rag.model_store.store import memory_bytes

    manifest = model.manifest
    described = (
        {"role": None, "form": None, "licence": None, "source": None, "bytes": None, "memory_bytes": None}
        if manifest is None
        else {
            "role": manifest.role.value,
            "form": form(manifest),
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


def form(manifest: ModelManifest) -> str | None:
    """Returns how a generator runs, ``paged`` or ``serial``; None for other roles, and where that is not known here."""
    from edge_rag.errors import ModelError

    try:
        return None if manifest.form is None else manifest.form.value
    except ModelError:
        return None


def _line(model: StoredModel) -> str:
    mark = "*" if model.chosen else " "
    if model.manifest is None:
        return f"{mark} {model.name:<28} {model.problem}"
    size = sum(record.bytes for record in model.manifest.files.values())
    where = "came along" if model.came_along else model.manifest.source
    return (
        f"{mark} {model.name:<28} {model.manifest.role.value:<10} {form(model.manifest) or '':<7}"
        f"{size / 2**20:8.1f} MiB  {model.manifest.licence}  {where}"
    )
