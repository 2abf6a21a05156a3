"""``edge-rag upgrade``: Tries another release beside the running one."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note, print_line, sigterm_as_interrupt

_EPILOG = """\b
Examples:
  edge-rag upgrade --check edge-rag-0.2.0-x86_64.tar
  edge-rag upgrade --check edge_rag-0.2.0-py3-none-manylinux_2_34_x86_64.whl
  edge-rag upgrade --check /opt/edge-rag/releases/0.2.0 --config /etc/edge-rag/edge-rag.toml
  edge-rag upgrade --check NEW.whl --backup monday.edge-rag --scratch /mnt/usb
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--check",
    "release",
    type=click.Path(path_type=Path),
    required=True,
    metavar="RELEASE",
    help="Offline bundle, wheel of edge-rag, or folder whose environment (venv, .venv) has it installed.",
)
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Try it with this backup. [default: a new one of the running daemon, else the newest on the box]",
)
@click.option(
    "--scratch",
    type=click.Path(path_type=Path),
    default=Path("/var/tmp"),
    show_default=True,
    metavar="DIR",
    help="Where the copy of the data lies meanwhile; needs room for about three times the data.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time until the release serves.",
)
@options.config_options
@options.as_json
def upgrade(
    release: Path,
    backup: Path | None,
    scratch: Path,
    wait_s: float,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> ExitCode:
    """Tries another release beside the running one.

    Installs nothing. The release is started on a Unix socket of its own, with the settings of the daemon, and with a
    copy of the data that is restored from a backup, so that it migrates what this box really has. It says whether the
    release runs here, opens all documents and answers a question, and what it takes of disk and memory. The running
    daemon goes on; both need memory meanwhile. A bundle is installed in the scratch folder; a wheel runs with the
    packages and models of this installation. Nothing is left behind, also after Ctrl-C. `scripts/install-service`
    installs a release.
    """
    from edge_rag.cli.release_trial import ReleaseTrial, Step

    for name, path in (("--check", release), ("--backup", backup), ("--scratch", scratch)):
        if path is not None and not path.exists():
            raise click.BadParameter(f"{path} does not exist", param_hint=name)
    settings = options.read_settings(config, data_dir)
    steps: list[Step] = []
    with sigterm_as_interrupt():
        folder = Path(tempfile.mkdtemp(prefix="edge-rag-", dir=scratch))
        try:
            trial = ReleaseTrial(release, config, settings.data_directory, settings.models.directory, folder, wait_s)
            for step in trial.run(lambda path: _save(path, backup, settings.data_directory)):
                steps.append(step)
                if not as_json:
                    print_line(f"{'ok' if step.ok else 'fail':<5} {step.name:<8} {step.detail}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    ok = all(step.ok for step in steps)
    if as_json:
        needs = None if trial.needs is None else asdict(trial.needs)
        emit({"release": str(release), "ok": ok, "steps": [asdict(step) for step in steps], "needs": needs})
    elif trial.needs is not None:
        note(
            f"it takes {trial.needs.disk_bytes / 2**20:,.0f} MiB of disk for the data and "
            f"{trial.needs.memory_bytes / 2**20:,.0f} MiB of memory; nothing was installed"
        )
    return ExitCode.OK if ok else ExitCode.FAILURE


def _save(path: Path, backup: Path | None, data_directory: Path) -> None:
    """Writes a backup of the box."""
    from edge_rag.cli.server_selection import answering
    from edge_rag.config.paths import socket_path
    from edge_rag.errors import ConfigurationError
    from edge_rag.storage.recovery.stored_backups import BACKUPS, stored_backups

    if backup is None:
        if (address := answering([socket_path(data_directory)])) is not None:
            with path.open("xb") as target, options.open_client(address) as client:
                client.backup(target)
            return
        kept = stored_backups(data_directory / BACKUPS)
        if not kept:
            raise ConfigurationError(
                f"no daemon serves {data_directory}, and it has no backup; start the daemon, or give --backup"
            )
        backup = data_directory / BACKUPS / kept[0].name
    shutil.copyfile(backup, path)
