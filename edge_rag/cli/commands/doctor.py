"""``edge-rag doctor``: Checks the installation and gives advice; repairs a damaged library."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note, printable
from edge_rag.core.address import ADDRESS_VARIABLE
from edge_rag.errors import ConfigurationError

if TYPE_CHECKING:
    from edge_rag.cli.health_checks import Check
    from edge_rag.storage.recovery.repair import Repair

_EPILOG = """\b
Examples:
  edge-rag doctor
  edge-rag doctor --config /etc/edge-rag.toml
  edge-rag doctor --json | jq '.checks[] | select(.verdict != "ok")'
  edge-rag doctor --repair --backup monday.edge-rag --source /srv/documents
"""
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(epilog=_EPILOG)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Directory the daemon would use.")
@click.option("--server", metavar="HOST:PORT", envvar=ADDRESS_VARIABLE, help="Address the daemon would listen on.")
@click.option("--repair", is_flag=True, help="Save the intact part of a damaged library; the daemon must not run.")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --repair: take lost documents from this backup.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --repair: ingest lost documents again from files of this folder.",
)
@click.option("--yes", is_flag=True, help="With --repair: do not ask.")
@options.as_json
def doctor(
    config: Path | None,
    data_dir: Path | None,
    server: str | None,
    repair: bool,
    backup: Path | None,
    source: Path | None,
    yes: bool,
    as_json: bool,
) -> ExitCode:
    """Checks the installation and gives advice; repairs a damaged library.

    Needs no running daemon. Reports the board, the device profile and the rule that chose it, where each stage runs
    and why, the memory plan, and what would make this machine faster.

    With --repair it saves the intact part of a damaged library, lists the result for each document, and keeps the
    damaged files in a folder of the data directory. Saved indexes and KV pages are computed again.
    """
    from edge_rag.cli.health_checks import (
        Check,
        Verdict,
        alert_checks,
        alerts_of,
        device_checks,
        device_json,
        installation_checks,
        settings_checks,
    )
    from edge_rag.config.settings import load_settings

    overrides: dict[str, object] = {}
    if data_dir is not None:
        overrides["data_directory"] = data_dir
    if server is not None:
        overrides["listen"] = server
    if repair:
        return _repair(load_settings(config, overrides).data_directory, backup, source, yes, as_json)
    if backup is not None or source is not None or yes:
        raise click.UsageError("--backup, --source and --yes need --repair")
    checks = list(installation_checks())
    device = daemon = None
    try:
        settings = load_settings(config, overrides)
    except ConfigurationError as error:
        checks.append(Check("settings", Verdict.FAIL, str(error), "correct the file or the variable"))
    else:
        try:
            from edge_rag.bootstrap.device import inspect_device
        except ImportError as error:
            checks.append(Check("board", Verdict.FAIL, f"cannot be inspected: {error}", "install edge-rag again"))
        else:
            daemon = options.running_daemon(settings)
            device = inspect_device(settings, 0 if daemon is None else daemon.resident_bytes)
            checks.extend(device_checks(device, settings))
        checks.extend(settings_checks(settings, daemon))
        checks.extend(alert_checks(alerts_of(settings, daemon)))
    failed = any(check.verdict is Verdict.FAIL for check in checks)
    if as_json:
        report = [asdict(check) | {"verdict": check.verdict.value} for check in checks]
        emit({"ok": not failed, "checks": report, "box": None if device is None else device_json(device)})
    else:
        for check in checks:
            click.echo(f"{click.style(f'{check.verdict.value:<4}', _COLOURS[check.verdict.value])}  {_line(check)}")
    return ExitCode.FAILURE if failed else ExitCode.OK


def _repair(directory: Path, backup: Path | None, source: Path | None, yes: bool, as_json: bool) -> ExitCode:
    from edge_rag.storage.recovery.repair import LibraryRepair, Origin

    if as_json and not yes:
        raise click.UsageError("--json asks nothing; give --yes too")
    if backup is not None and not backup.is_file():
        raise click.BadParameter(f"{backup} is not a file", param_hint="--backup")
    if source is not None and not source.is_dir():
        raise click.BadParameter(f"{source} is not a folder", param_hint="--source")
    with LibraryRepair(directory, backup, source) as repair:
        result = repair.prepare()
        if result.problem is not None:
            if not as_json:
                _show_repair(result)
                if not yes:
                    click.confirm(f"Put this in place? The damaged files stay in a folder of {directory}", abort=True)
            result = repair.put_in_place()
    if as_json:
        documents = [asdict(document) | {"origin": document.origin.value} for document in result.documents]
        kept_in = None if result.kept_in is None else str(result.kept_in)
        emit(asdict(result) | {"documents": documents, "kept_in": kept_in})
    elif result.problem is None:
        note(f"nothing is damaged in {directory}")
    else:
        note(f"repaired; the damaged files are in {result.kept_in}")
    return ExitCode.FAILURE if result.count(Origin.LOST) else ExitCode.OK


def _show_repair(result: Repair) -> None:
    click.echo(printable(str(result.problem)))
    click.echo(f"{result.damaged_pages:,} of {result.pages:,} pages are damaged")
    for document in result.documents:
        name = f"{document.collection}/{document.name}"
        click.echo(
            f"{document.origin.value:<8} {printable(name)}" + (f" ({document.detail})" if document.detail else "")
        )
    if result.unknown_spool_files:
        click.echo(f"{len(result.unknown_spool_files)} queued documents have lost their names; their bytes are kept")
    if not result.documents:
        click.echo("no document is known of; the library will be empty")


def _line(check: Check) -> str:
    lines = "".join(f"\n      {printable(line)}" for line in check.lines)
    advice = f"\n      -> {check.advice}" if check.advice else ""
    return f"{check.name:<12} {printable(check.detail)}{lines}{advice}"
