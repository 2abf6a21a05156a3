"""``edge-rag serve``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings

_EPILOG = """\b
Examples:
  edge-rag serve
  edge-rag serve --listen 127.0.0.1:7500 --data-dir /var/lib/edge-rag
  edge-rag serve --config /etc/edge-rag.toml --json 2>> edge-rag.log

\b
Every key of the file can also be set in the environment, for example
EDGE_RAG_GENERATOR__MAX_SLOTS=4. Ctrl-C ends the daemon when what it has
begun is done; a second Ctrl-C ends it at once. SIGHUP has it read its
settings again: what can change while it runs does, and the log says what
needs a restart.
"""


@click.command(epilog=_EPILOG)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--listen", metavar="HOST:PORT", help="Address to serve on. [default: 127.0.0.1:7421]")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where documents and indexes are kept."
)
@options.as_json
def serve(config: Path | None, listen: str | None, data_dir: Path | None, as_json: bool) -> int:
    """Runs the daemon in the foreground; its log goes to standard error, with --json as JSON lines."""
    # Before numpy is loaded: its matrix products here are small, and a second BLAS thread waits for a core that
    # ONNX Runtime is using.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from edge_rag import daemon
    from edge_rag.config.settings import load_settings

    overrides: dict[str, object] = {}
    if listen is not None:
        overrides["listen"] = listen
    if data_dir is not None:
        overrides["data_directory"] = data_dir
    if as_json:
        overrides["log"] = {"format": "json"}

    def read() -> Settings:
        return load_settings(config, overrides)

    return daemon.run(read(), read)
