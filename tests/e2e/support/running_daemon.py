"""A real daemon process over real gRPC, on a free loopback port."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self, cast

import grpc

from edge_rag.api.v1 import documents_pb2
from tests.e2e.support.jobs import parts, stub

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "deploy" / "samples"
GENERATOR: Final = ROOT / "tests" / "fixtures" / "quoter"
"""A small language model: what it writes is of no use, but is written as by any other."""


@cache
def small_models() -> Mapping[str, str]:
    """Returns settings of the section ``models`` for tests that are not about models; these take less time and memory
    than the defaults. Their directory is removed when the process ends.
    """
    folder = tempfile.TemporaryDirectory(prefix="edge-rag-models-")
    atexit.register(folder.cleanup)
    for source in (ROOT / "models" / "minilm-l6", GENERATOR):
        shutil.copytree(source, Path(folder.name) / source.name)
    shutil.copy(ROOT / "models" / "catalog.toml", folder.name)
    return {"directory": folder.name, "embedder": "minilm-l6", "generator": GENERATOR.name}


def model_variables(models: Mapping[str, str]) -> dict[str, str]:
    return {f"EDGE_RAG_MODELS__{key.upper()}": value for key, value in models.items()}


@dataclass(frozen=True)
class RunningDaemon:
    address: str
    data_dir: Path
    process: subprocess.Popen[str]
    log: Path
    http: str = ""
    """Where it serves HTTP; empty if it does not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self._reap()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """Ends it as a loss of power would, frozen or not."""
        self.process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def start_daemon(
    data_dir: Path,
    log: Path,
    config: str = "",
    environment: Mapping[str, str] | None = None,
    listen: str = "127.0.0.1:0",
    prefix: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
) -> RunningDaemon:
    """Starts a daemon and returns once it answers; fails with its log if it does not start.

    Args:
        data_dir: Its data directory.
        log: File for its log; its configuration is written beside it.
        config: Settings as TOML. HTTP is off unless they have its section: several daemons run at once.
        environment: Further environment variables.
        listen: Its address.
        prefix: Command that starts it.
        models: Settings of the section ``models``, where ``config`` has no others; empty for the defaults, None for
            small models.
    """
    command = [*prefix, sys.executable, "-m", "edge_rag.cli.main", "serve"]
    command += ["--listen", listen, "--data-dir", str(data_dir)]
    if config:
        file = log.with_suffix(".toml")
        file.write_text(config)
        command += ["--config", str(file)]
    settings = tomllib.loads(config)
    chosen = small_models() if models is None else models
    variables = model_variables({key: value for key, value in chosen.items() if key not in settings.get("models", {})})
    if "http" not in settings:
        variables["EDGE_RAG_HTTP__ENABLED"] = "false"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=os.environ | variables | dict(environment or {}),
        )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"127\.0\.0\.1:\d+", line):
            http = re.search(r"https?://\S+", line)
            return RunningDaemon(found.group(), data_dir, process, log, http.group() if http else "")
    process.wait(10)
    process.stdout.close()
    raise AssertionError(f"the daemon did not start:\n{log.read_text()}")


def ingest(
    address: str, documents: Mapping[str, bytes], collection: str = "default"
) -> list[documents_pb2.IngestResponse.Outcome]:
    with grpc.insecure_channel(address) as channel:
        return list(stub(channel).Ingest(parts(documents, collection), timeout=120).outcomes)


def sample_documents() -> dict[str, bytes]:
    return {
        path.relative_to(SAMPLES).as_posix(): path.read_bytes()
        for path in sorted(SAMPLES.rglob("*"))
        if path.is_file() and path.suffix in {".md", ".txt", ".html", ".pdf"}
    }


def status_of(refused: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    call = cast(grpc.Call, refused)
    return call.code(), call.details() or ""
