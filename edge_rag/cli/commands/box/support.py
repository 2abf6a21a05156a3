"""``edge-rag support``: Writes a bundle without texts and names for somebody who helps."""

from __future__ import annotations

import urllib.request
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, note

if TYPE_CHECKING:
    from edge_rag.cli.support_bundle import Redaction
    from edge_rag.config.settings import Settings
    from edge_rag.core.monitoring.status import DaemonStatus

_EPILOG = """\b
Examples:
  edge-rag support box.tar.gz
  edge-rag support --config /etc/edge-rag/edge-rag.toml /tmp/box.tar.gz
  tar -xOzf box.tar.gz               # read it before you send it
"""
_METRICS_TIMEOUT_S: Final = 5.0
_MOST_METRICS_BYTES: Final = 8 << 20


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.config_options
@options.as_json
def support(file: Path, config: Path | None, data_dir: Path | None, as_json: bool) -> ExitCode:
    """Writes a bundle without texts and names for somebody who helps.

    FILE is a tar.gz of JSON documents: versions, settings, the machine, the results of `edge-rag doctor`, the daemon's
    status, metrics and latest scheduling events, and sizes and counts of the stored data. It has no text of questions
    and documents, no names of documents, collections, clients, hosts or files, no tokens and no lines of the log.
    Clients and requests are numbered; text settings are shown as `set` or `default`. A file that exists is not
    replaced. Works without a running daemon, with less in it.
    """
    from edge_rag.cli.support_bundle import write_bundle

    if file.exists():
        raise click.ClickException(f"{file} exists; name another file")
    settings = options.read_settings(config, data_dir)
    daemon = options.running_daemon(settings)
    parts = _collect(settings, daemon)
    try:
        size = write_bundle(file, parts)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    if as_json:
        emit({"file": str(file), "bytes": size, "daemon": daemon is not None, "parts": sorted(parts)})
    else:
        note(f"{file}: {size:,} bytes; `tar -xOzf {file}` shows what is in it" + ("" if daemon else "; no daemon runs"))
    return ExitCode.OK


def _collect(settings: Settings, daemon: DaemonStatus | None) -> dict[str, Any]:
    from edge_rag.bootstrap.device import inspect_device
    from edge_rag.cli.health_checks import (
        alert_checks,
        alerts_of,
        device_checks,
        installation_checks,
        settings_checks,
    )
    from edge_rag.cli.support_bundle import Redaction, check_result, installation, redacted_settings, stored_data

    redaction = Redaction()
    device = inspect_device(settings, 0 if daemon is None else daemon.resident_bytes)
    alerts = alerts_of(settings, daemon)
    checks = [*installation_checks(), *device_checks(device, settings)]
    checks += [*settings_checks(settings, daemon), *alert_checks(alerts)]
    parts = {
        "installation": installation(),
        "settings": redacted_settings(settings),
        "machine": redaction.plain(device.facts),
        "checks": [check_result(check) for check in checks],
        "alerts": redaction.plain(alerts),
        "data": stored_data(settings.data_directory),
    }
    if daemon is not None:
        parts["status"] = redaction.plain(daemon)
        parts |= _from_daemon(settings, redaction)
    return parts


def _from_daemon(settings: Settings, redaction: Redaction) -> dict[str, Any]:
    from edge_rag.cli.support_bundle import EVENTS
    from edge_rag.client import AuditEntry, ClientError

    parts: dict[str, Any] = {}
    try:
        with options.open_client(options.local_address(settings)) as client:
            entries = islice(client.audit_events(limit=EVENTS), EVENTS + 1)
            parts["events"] = [redaction.event(each) for each in entries if isinstance(each, AuditEntry)]
            parts["usage"] = redaction.plain(client.usage())
    except ClientError as error:
        parts["events"] = {"failed": error.status.value}
    if settings.metrics.port is not None:
        try:
            url = f"http://127.0.0.1:{settings.metrics.port}/metrics"
            with urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S) as answer:
                parts["metrics"] = redaction.metrics(answer.read(_MOST_METRICS_BYTES).decode())
        except (OSError, ValueError) as error:
            parts["metrics"] = {"failed": type(error).__name__}
    return parts
