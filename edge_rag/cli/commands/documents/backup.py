"""``edge-rag backup``: Writes a consistent backup of all documents.
``edge-rag restore``: Restores a backup into the data directory.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import counted, emit, note


@click.command(
    epilog="\b\nExamples:\n  edge-rag backup monday.edge-rag\n  edge-rag backup --server unix:/run/rag.sock a.bak"
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@options.connection
def backup(file: Path, force: bool, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Writes a consistent backup of all documents.

    The daemon keeps serving. The backup contains every collection with text, metadata and vectors, and the documents
    that wait in jobs; models are named but not included. FILE is created only after all of it is written and verified.
    """
    from edge_rag.core.atomic_file import new_file
    from edge_rag.storage.backup import unpack

    if file.exists() and not force:
        raise click.ClickException(f"{file} exists; name another file or give --force")
    try:
        # Readable by its owner only: it holds the text of all collections.
        with new_file(file, 0o600) as target:
            with options.open_client(server, timeout_s) as client:
                client.backup(target)
            target.flush()
            manifest = unpack(Path(target.name), None)
    except OSError as error:
        raise click.ClickException(f"{error.filename or file}: {error.strerror}; no backup was made") from error
    size = file.stat().st_size
    if as_json:
        files = len(manifest.files)
        emit({"file": str(file), "bytes": size} | {**asdict(manifest), "files": files})
    else:
        note(f"{counted(manifest.documents, 'document')}, {size:,} bytes, checked: {file}")
    return ExitCode.OK


@click.command(epilog="\b\nExamples:\n  edge-rag restore monday.edge-rag\n  edge-rag restore --replace monday.edge-rag")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Target directory. [default: as for serve]",
)
@click.option("--replace", is_flag=True, help="Delete the documents that are there.")
@options.as_json
def restore(file: Path, config: Path | None, data_dir: Path | None, replace: bool, as_json: bool) -> ExitCode:
    """Restores a backup into the data directory.

    The daemon must not be running. The backup is verified before anything is changed. Models are not part of a backup;
    it names those it needs.
    """
    from edge_rag.config.settings import load_settings
    from edge_rag.storage.recovery.restore import restore as restore_backup

    overrides: dict[str, object] = {} if data_dir is None else {"data_directory": data_dir}
    directory = load_settings(config, overrides).data_directory
    manifest = restore_backup(file, directory, replace)
    if as_json:
        emit({"data_directory": str(directory)} | {**asdict(manifest), "files": len(manifest.files)})
        return ExitCode.OK
    note(f"{counted(manifest.documents, 'document')} of {manifest.created_at} are in {directory}")
    for model in manifest.models:
        note(f"made with {model}", "dim")
    return ExitCode.OK
