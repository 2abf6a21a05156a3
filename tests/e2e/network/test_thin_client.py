import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.e2e.support.running_daemon import ROOT, RunningDaemon

pytestmark = pytest.mark.serial

PROGRAM = """
import importlib, pkgutil, sys
import edge_rag
from edge_rag.client import Client, Finished, TextDelta

names = [found.name for found in pkgutil.walk_packages(edge_rag.__path__, "edge_rag.")]
for name in names:
    importlib.import_module(name)
with Client(sys.argv[1], timeout_s=120) as client:
    events = list(client.ask("How often must the pump bearings be greased?"))
assert isinstance(events[-1], Finished)
print("".join(event.text for event in events if isinstance(event, TextDelta)))
for heavy in ("numpy", "faiss", "onnxruntime", "pydantic", "structlog", "click"):
    try:
        importlib.import_module(heavy)
    except ImportError:
        continue
    raise SystemExit(f"{heavy} is there")
"""


def test_the_client_alone_asks_a_daemon_and_leaves_an_installed_daemon_alone(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    def run(*command: str | Path) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    run(sys.executable, "-m", "venv", "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", ROOT / "deploy" / "client")
    assert "2,000 operating hours" in run(python, "-c", PROGRAM, daemon.address)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    assert not (site / "edge_rag").exists()
    (site / "edge_rag").mkdir()
    (site / "edge_rag" / "__init__.py").write_text('place = "the daemon\'s"')
    assert run(python, "-c", "import edge_rag; print(edge_rag.place)") == "the daemon's\n"


def test_the_client_alone_requires_what_the_daemon_requires_of_the_same_packages() -> None:
    alone, whole = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("deploy/client", ".")
    )
    assert set(alone["dependencies"]) <= set(whole["dependencies"])
    assert (alone["requires-python"], alone["license"]) == (whole["requires-python"], whole["license"])
