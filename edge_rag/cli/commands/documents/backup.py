"""``edge-rag backup`` and ``edge-rag restore``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes
from edge_rag.client import Client


@click.command(
    epilog="\b\nExamples:\n  edge-rag backup monday.edge-rag\n  edge-rag backup --server unix:/run/rag.sock a.bak"
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@options.connection
def backup(file: Path, force: bool, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Makes a backup of all documents of the running daemon, of one moment, while it goes on serving.

    It has every collection with its text, metadata and vectors and the documents that wait to be stored; models are
    named in it but not included. FILE appears under its name only when all of it is written and checked.
    """
    from edge_rag.storage.backup import unpack

    if file.exists() and not force:
        raise click.ClickException(f"{file} exists; name another file or give --force")
    partial = file.with_name(f"{file.name}.part")
    try:
        with partial.open("wb") as target, Client(server, timeout_s=timeout_s) as client:
            client.backup(target)
            target.flush()
            os.fsync(target.fileno())
        manifest = unpack(partial, None)
        partial.replace(file)
        folder = os.open(file.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise click.ClickException(f"{error.filename or file}: {error.strerror}; no backup was made") from error
    finally:
        partial.unlink(missing_ok=True)
    size = file.stat().st_size
    if as_json:
        files = len(manifest.files)
        emit({"file": str(file), "bytes": size} | {**asdict(manifest), "files": files})
    else:
        notes().print(f"{manifest.documents} documents, {size:,} bytes, checked: {file}")
    return ExitCode.OK


@click.command(epilog="\b\nExamples:\n  edge-rag restore monday.edge-rag\n  edge-rag restore --replace monday.edge-rag")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where to. [default: as for serve]")
@click.option("--replace", is_flag=True, help="Let the documents that are there go.")
@options.as_json
def restore(file: Path, config: Path | None, data_dir: Path | None, replace: bool, as_json: bool) -> ExitCode:
    """Puts a backup into the data directory; the daemon must not be running.

    All of it is checked before anything is touched. Models are not part of a backup: those it was made with are named.
    """
    from edge_rag.config.settings import load_settings
    from edge_rag.storage.restore import restore as put_back

    overrides: dict[str, object] = {} if data_dir is None else {"data_directory": data_dir}
    directory = load_settings(config, overrides).data_directory
    manifest = put_back(file, directory, replace)
    if as_json:
        emit({"data_directory": str(directory)} | {**asdict(manifest), "files": len(manifest.files)})
        return ExitCode.OK
    console = notes()
    console.print(f"{manifest.documents} documents of {manifest.created_at} are in {directory}")
    for model in manifest.models:
        console.print(f"made with {model}", style="dim")
    return ExitCode.OK
