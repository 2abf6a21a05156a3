"""``edge-rag serve``: Runs the daemon in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.core.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from edge_rag.config.settings import Settings

_EPILOG = """\b
Examples:
  edge-rag serve
  edge-rag serve --listen 127.0.0.1:7500 --data-dir /var/lib/edge-rag
  edge-rag serve --config /etc/edge-rag.toml --json 2>> edge-rag.log

\b
Every key of the file can also be set in the environment, for example
EDGE_RAG_GENERATOR__MAX_SLOTS=4. Ctrl-C stops the daemon after the running
calls; a second Ctrl-C stops it at once. SIGHUP reloads the settings: those
that can change at run time are applied, and the log names those that need a
restart.

\b
Besides the address it opens a Unix socket for its own user, edge-rag.sock in
the data directory or in systemd's runtime directory, which other commands on
this host prefer.
"""


@click.command(epilog=_EPILOG)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--listen", metavar="HOST:PORT", help=f"Address to listen on. [default: {DEFAULT_ADDRESS}]")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Directory of documents and indexes.")
@options.as_json
def serve(config: Path | None, listen: str | None, data_dir: Path | None, as_json: bool) -> int:
    """Runs the daemon in the foreground. It logs to standard error, with --json as JSON lines."""
    # Before numpy is imported: its matrix products are small here, and a second BLAS thread would compete with ONNX
    # Runtime for a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from edge_rag.runtime.session.process import raise_gc_threshold

    raise_gc_threshold()  # the imports alone make enough objects for full collections of a tenth of their time
    from edge_rag import daemon
    from edge_rag.config.settings import load_settings

    overrides: dict[str, object] = {}
    if listen is not None:
        overrides["listen"] = listen
    if data_dir is not None:
        overrides["data_directory"] = data_dir
    if as_json:
        overrides["log"] = {"format": "json"}

    def load() -> Settings:
        return load_settings(config, overrides)

    return daemon.run(load(), load)
