"""``edge-rag models list``.

Where the model store is, and which daemon uses it: what every ``models`` command needs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, visible

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings
    from edge_rag.core.monitoring.status import DaemonStatus
    from edge_rag.model_store.store import StoredModel
    from edge_rag.runtime.model_folder.manifest import ModelManifest


_DAEMON_S = 2.0

Command = TypeVar("Command", bound=Callable[..., Any])


def place(command: Command) -> Command:
    """Adds --config and --data-dir."""
    config = click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
    data_dir = click.option(
        "--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Data directory that holds the store."
    )
    return config(data_dir(command))


def settings_of(config: Path | None, data_dir: Path | None) -> Settings:
    """Returns the settings a daemon with these options would have.

    Raises:
        ConfigurationError: They cannot be used.
    """
    from edge_rag.config.settings import load_settings

    return load_settings(config, {} if data_dir is None else {"data_directory": data_dir})


def running_daemon(settings: Settings) -> DaemonStatus | None:
    """Returns the report of the daemon that has the settings' data directory; None where there is none."""
    from edge_rag.client import Client, ClientError

    try:
        with Client(settings.local_listen or settings.listen, timeout_s=_DAEMON_S) as client:
            report = client.status()
    except ClientError:
        return None
    return report if Path(report.data_directory) == settings.data_directory else None


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
        "builtin": model.builtin,
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
    where = "came along" if model.builtin else model.manifest.source
    return (
        f"{mark} {model.name:<28} {model.manifest.role.value:<10} {form(model.manifest) or '':<7}"
        f"{size / 2**20:8.1f} MiB  {model.manifest.licence}  {where}"
    )
