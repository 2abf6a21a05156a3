"""Where the model store is, and which daemon uses it: what every ``models`` command needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings
    from edge_rag.core.monitoring.status import DaemonStatus

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
