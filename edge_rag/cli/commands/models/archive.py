"""``edge-rag models export`` and ``edge-rag models import``: a model in one file, for a box without a network."""

from __future__ import annotations

from pathlib import Path

import click

from edge_rag.cli import options
from edge_rag.cli.commands.models.add import ProgressView, print_added, required_keys
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note, sigterm_as_interrupt


@click.command(
    "export",
    epilog="""\b
Examples:
  edge-rag models export qwen2.5-0.5b-instruct /media/stick/qwen.tar
  edge-rag models export smollm2 smollm2.tar --sign office.key.pem
""",
)
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path),
    metavar="PRIVATE.pem",
    help="Sign the model with this key (OpenSSF model signing), for boxes that require a signature.",
)
@options.config_options
@options.as_json
def export(
    name: str, file: Path, force: bool, key: Path | None, config: Path | None, data_dir: Path | None, as_json: bool
) -> ExitCode:
    """Writes a model to one file, to carry it to another box.

    Every byte is compared with the model's manifest while it is written. FILE is a tar archive without compression, and
    appears only when it is complete; the same model gives the same bytes.
    """
    from edge_rag.core.atomic_file import new_file
    from edge_rag.model_store.store import store_of

    if file.exists() and not force:
        raise click.ClickException(f"{file} exists; name another file or give --force")
    store = store_of(options.read_settings(config, data_dir))
    try:
        with ProgressView() as view, sigterm_as_interrupt(), new_file(file, 0o644) as target:
            manifest = store.export(name, target, key, view)
    except OSError as error:
        raise click.ClickException(f"{error.filename or file}: {error.strerror}; nothing was exported") from error
    size = file.stat().st_size
    if as_json:
        emit({"name": name, "role": manifest.role.value, "file": str(file), "bytes": size, "signed": key is not None})
    else:
        note(f"{file} has {name}, {size / 2**20:.1f} MiB; on the other box: edge-rag models import {file.name}", "dim")
    return ExitCode.OK


@click.command(
    "import",
    epilog="""\b
Examples:
  edge-rag models import /media/stick/qwen.tar
  edge-rag models import smollm2.tar --name writer --key office.pem
""",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", help="Name in the store. [default: as on the box that exported it]")
@required_keys
@options.config_options
@options.as_json
def import_model(
    file: Path, name: str | None, keys: tuple[Path, ...], config: Path | None, data_dir: Path | None, as_json: bool
) -> ExitCode:
    """Adds a model that another box has exported.

    Nothing is converted. The file is not trusted: names, sizes, hashes, the signature if one is required, and what the
    model's files contain are checked before the model is opened once and gets its name. Ctrl-C leaves the store
    unchanged.
    """
    from edge_rag.model_store.signature import acceptable_keys
    from edge_rag.model_store.source import AddRequest, check_name
    from edge_rag.model_store.sources.archive import archive_source
    from edge_rag.model_store.store import store_of

    settings = options.read_settings(config, data_dir)
    archive = archive_source(file)
    keys = acceptable_keys(settings.models.trusted_keys, keys)
    request = AddRequest(archive, check_name(name or archive.name), None, None, keys=keys)
    with ProgressView() as view, sigterm_as_interrupt():
        manifest = store_of(settings).add(request, view)
    print_added(request.name, manifest, as_json)
    return ExitCode.OK
