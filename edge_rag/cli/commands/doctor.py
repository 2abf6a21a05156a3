"""``edge-rag doctor``: Checks the installation and gives advice."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, printable
from edge_rag.core.address import ADDRESS_VARIABLE
from edge_rag.errors import ConfigurationError

if TYPE_CHECKING:
    from edge_rag.cli.health_checks import Check

_EPILOG = """\b
Examples:
  edge-rag doctor
  edge-rag doctor --config /etc/edge-rag.toml
  edge-rag doctor --json | jq '.checks[] | select(.verdict != "ok")'
"""
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(epilog=_EPILOG)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Directory the daemon would use.")
@click.option("--server", metavar="HOST:PORT", envvar=ADDRESS_VARIABLE, help="Address the daemon would listen on.")
@options.as_json
def doctor(config: Path | None, data_dir: Path | None, server: str | None, as_json: bool) -> ExitCode:
    """Checks the installation and gives advice.

    Needs no running daemon. Reports the board, the device profile and the rule that chose it, where each stage runs
    and why, the memory plan, and what would make this machine faster.
    """
    from edge_rag.cli.health_checks import (
        Check,
        Verdict,
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
    checks = list(installation_checks())
    device = None
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
        checks.extend(settings_checks(settings))
    failed = any(check.verdict is Verdict.FAIL for check in checks)
    if as_json:
        report = [asdict(check) | {"verdict": check.verdict.value} for check in checks]
        emit({"ok": not failed, "checks": report, "box": None if device is None else device_json(device)})
    else:
        for check in checks:
            click.echo(f"{click.style(f'{check.verdict.value:<4}', _COLOURS[check.verdict.value])}  {_line(check)}")
    return ExitCode.FAILURE if failed else ExitCode.OK


def _line(check: Check) -> str:
    lines = "".join(f"\n      {printable(line)}" for line in check.lines)
    advice = f"\n      -> {check.advice}" if check.advice else ""
    return f"{check.name:<12} {printable(check.detail)}{lines}{advice}"
