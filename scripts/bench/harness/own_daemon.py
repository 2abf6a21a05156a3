"""A daemon with nothing but its defaults, on a data directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_rag.client import Client, ClientError, RetryPolicy

START_SECONDS = 120
STOP_SECONDS = 30


class DaemonFailed(Exception):
    """The daemon did not start; ends with what it logged."""


@contextmanager
def own_daemon(repository: Path) -> Iterator[Client]:
    """Starts a daemon on a socket in a temporary folder; stops it and removes everything at the end.

    Settings in the environment are not passed on, so that what is measured are the defaults.

    Raises:
        DaemonFailed: It did not start.
    """
    with tempfile.TemporaryDirectory(prefix="edge-rag-") as scratch:
        folder = Path(scratch)
        address = f"unix:{folder / 'socket'}"
        command = [sys.executable, "-m", "edge_rag.cli.main", "serve"]
        command += ["--listen", address, "--data-dir", str(folder / "data")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_RAG_")}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=repository, env=environment)
        try:
            with Client(address, retry=RetryPolicy(max_backoff_s=60)) as client:
                try:
                    _wait(client, process)
                except ClientError as error:
                    said = (folder / "log").read_text(errors="replace")[-2000:]
                    raise DaemonFailed(f"the daemon did not start: {error}\n{said}") from error
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(client: Client, process: subprocess.Popen[bytes]) -> None:
    """Waits until it serves, in short turns so that one that ended is noticed."""
    for turn in range(START_SECONDS):
        try:
            client.wait_until_serving(1.0)
        except ClientError:
            if process.poll() is not None or turn == START_SECONDS - 1:
                raise
        else:
            return
