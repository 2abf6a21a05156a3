"""``edge-rag models``: Adds, selects, verifies and recommends models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_rag.cli import options
from edge_rag.cli.commands.models.add import add
from edge_rag.cli.commands.models.archive import export, import_model
from edge_rag.cli.commands.models.recommend import recommend
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import emit, error_console, note, printable
from edge_rag.errors import EdgeRagError

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings
    from edge_rag.model_store.store import StoredModel

_ROLES = ("embedder", "reranker", "generator")
_DEFAULT = "default"


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  edge-rag models recommend
  edge-rag models recommend --role embedder
  edge-rag models add hf:Qwen/Qwen2.5-0.5B-Instruct
  edge-rag models use generator qwen2.5-0.5b-instruct
  edge-rag models list
""",
)
def models() -> None:
    """Adds, selects, verifies and recommends models. Needs no running daemon."""


models.add_command(add)
models.add_command(export)
models.add_command(import_model)
models.add_command(recommend)


@models.command(
    "list",
    epilog="""\b
Examples:
  edge-rag models list
  edge-rag models list --json | jq '.models[].name'
""",
)
@options.config_options
@options.as_json
def list_models(config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Lists the built-in and the added models; * marks those selected with `use`."""
    from edge_rag.model_store.store import store_of

    found = store_of(options.read_settings(config, data_dir)).models()
    if as_json:
        emit({"models": [_model_json(model) for model in found]})
        return ExitCode.OK
    for model in found:
        click.echo(printable(_line(model)))
    return ExitCode.OK


def _model_json(model: StoredModel) -> dict[str, Any]:
    from edge_rag.model_store.store import memory_bytes

    manifest = model.manifest
    details = (
        {"role": None, "form": None, "licence": None, "source": None, "bytes": None, "memory_bytes": None}
        if manifest is None
        else {
            "role": manifest.role.value,
            "form": manifest.form_name or None,
            "licence": manifest.licence,
            "source": manifest.source,
            "bytes": sum(record.bytes for record in manifest.files.values()),
            "memory_bytes": memory_bytes(manifest),
        }
    )
    return {
        "name": model.name,
        **details,
        "folder": str(model.folder),
        "builtin": model.builtin,
        "chosen": model.chosen,
        "problem": model.problem,
    }


def _line(model: StoredModel) -> str:
    mark = "*" if model.chosen else " "
    if model.manifest is None:
        return f"{mark} {model.name:<28} {model.problem}"
    size = sum(record.bytes for record in model.manifest.files.values())
    where = "built-in" if model.builtin else model.manifest.source
    return (
        f"{mark} {model.name:<28} {model.manifest.role.value:<10} {model.manifest.form_name:<7}"
        f"{size / 2**20:8.1f} MiB  {model.manifest.licence}  {where}"
    )


@models.command(
    epilog="""\b
Examples:
  edge-rag models use generator qwen2.5-0.5b-instruct
  edge-rag models use embedder minilm-l6      # for English alone
  edge-rag models use embedder default
"""
)
@click.argument("role", type=click.Choice(_ROLES))
@click.argument("name")
@options.config_options
@options.as_json
def use(role: str, name: str, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Selects the model of a role after verifying it. A model named in the settings takes precedence.

    A running daemon swaps the generator at once, while it answers. Other roles change at its next start.
    """
    from edge_rag.model_store.store import explicit_model, model_of, store_of
    from edge_rag.runtime.model_folder.manifest import ModelRole

    settings = options.read_settings(config, data_dir)
    store, model_role = store_of(settings), ModelRole(role)
    if name == _DEFAULT:
        store.use_default(model_role)
    else:
        store.use(model_role, name)
    explicit = explicit_model(settings, store, model_role)
    swapped, problem = False, ""
    if model_role is ModelRole.GENERATOR and explicit is None and name != _DEFAULT:
        swapped, problem = _swap_generator(settings, name)
    if as_json:
        chosen = None if name == _DEFAULT else name
        emit({"role": role, "name": chosen, "overridden_by": explicit, "in_place": swapped, "problem": problem})
        return ExitCode.OK
    when = "in use now" if swapped else "in use after the next start of the daemon"
    shown = f"the default, {model_of(settings, store, model_role) or 'none'}" if name == _DEFAULT else name
    note(f"{role}: {shown}, {when}", "dim")
    if model_role is ModelRole.EMBEDDER:
        note("the daemon then embeds every stored passage again, in the background", "yellow")
    if problem:
        note(f"the running daemon keeps its model: {problem}", "yellow")
    if explicit is not None:
        note(f"but models.{role} = {explicit!r} is set and takes precedence", "yellow")
    return ExitCode.OK


def _swap_generator(settings: Settings, name: str) -> tuple[bool, str]:
    """Swaps the generator of a running daemon; returns whether it did, and the daemon's reason if it refused."""
    from edge_rag.client import ClientError

    if options.running_daemon(settings) is None:
        return False, ""
    try:
        with (
            options.open_client(options.local_address(settings)) as client,
            error_console().status(f"loading {printable(name)}"),
        ):
            client.use_model("generator", name)
    except ClientError as error:
        return False, str(error)
    return True, ""


@models.command(
    epilog="""\b
Examples:
  edge-rag models verify
  edge-rag models verify qwen2.5-0.5b-instruct --json
"""
)
@click.argument("name", required=False)
@options.config_options
@options.as_json
def verify(name: str | None, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Verifies the files of one model, or of all, against the hashes of the manifest."""
    from edge_rag.model_store.store import store_of

    store = store_of(options.read_settings(config, data_dir))
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
            click.echo(printable(f"{checked}: {problems.get(checked, 'all files match the manifest')}"))
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
@options.config_options
@options.as_json
def remove(name: str, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Deletes a model that no role uses."""
    from edge_rag.model_store.store import store_of

    settings = options.read_settings(config, data_dir)
    store_of(settings).remove(name, _models_in_use(settings))
    if as_json:
        emit({"removed": name})
    else:
        note(f"{name} was removed", "dim")
    return ExitCode.OK


@models.command(
    epilog="""\b
Examples:
  edge-rag models calibrate qwen2.5-0.5b-instruct
  edge-rag models calibrate qwen2.5-0.5b-instruct --documents /srv/manuals
  edge-rag models calibrate ~/models/my-model --documents /var/lib/edge-rag --tokens 20000

\b
MODEL is the name of a model in the store, or a model folder. Ctrl-C leaves its
folder unchanged.
"""
)
@click.argument("model")
@click.option(
    "--documents",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of .txt and .md files, or a data directory. [default: the data directory]",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Number of tokens after which no further text is read.",
)
@click.option(
    "--margin",
    type=click.FloatRange(1, 10),
    default=1.1,
    show_default=True,
    help="Ratio of the scaled range to the largest observed value.",
)
@click.option("--threads", type=click.IntRange(1), help="Compute threads. [default: one per core]")
@options.config_options
@options.as_json
def calibrate(
    model: str,
    documents: Path | None,
    tokens: int,
    margin: float,
    threads: int | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Makes the CUDA form of a generator, scaled to your documents.

    The generator runs over the documents on the CPU. Its folder gets a form for CUDA whose INT8 keys and values are
    scaled to the observed ranges.
    """
    from rich.progress import Progress

    from edge_rag.model_store.calibrate import calibrate as add_cuda_form
    from edge_rag.model_store.store import store_of
    from edge_rag.runtime.session.sessions import configure_thread_pool

    settings = options.read_settings(config, data_dir)
    folder = Path(model) if Path(model).is_dir() else store_of(settings).find(model)
    configure_thread_pool(threads or os.cpu_count() or 1)
    with Progress(console=error_console(), transient=True) as progress:
        task = progress.add_task("tokens", total=tokens)
        done = add_cuda_form(
            folder,
            documents or settings.data_directory,
            tokens,
            margin,
            lambda count: progress.update(task, completed=min(count, tokens)),
        )
    if as_json:
        emit({"model": str(folder), "texts": done.texts, "tokens": done.tokens})
    else:
        note(f"{folder} has a form for CUDA, scaled to {done.tokens} tokens of {done.texts} texts", "dim")
    return ExitCode.OK


def _models_in_use(settings: Settings) -> frozenset[str]:
    from edge_rag.model_store.store import explicit_model, store_of
    from edge_rag.runtime.model_folder.manifest import ModelRole

    store = store_of(settings)
    names = {name for role in ModelRole if (name := explicit_model(settings, store, role)) is not None}
    if (report := options.running_daemon(settings)) is not None:
        names.update(model.name for model in report.models)
    return frozenset(names)
