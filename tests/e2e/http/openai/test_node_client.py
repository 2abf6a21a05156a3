"""The official client for Node.js, by the example of the guide."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.http.openai.test_openai_client import examples
from tests.e2e.support.running_daemon import RunningDaemon

PACKAGE = "openai"
VERSION = "6.49.0"
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ETIMEDOUT", "ENOTCACHED")
"""npm's errors where there is no network."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or shutil.which("npm") is None,
        reason="Node.js and npm are missing: apt-get install nodejs npm",
    ),
]


@pytest.fixture(scope="module")
def project(request: pytest.FixtureRequest) -> Path:
    """A folder with the package; it is kept for later runs."""
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("node")
    installed = folder / "node_modules" / PACKAGE / "package.json"
    if not installed.exists() or json.loads(installed.read_text(encoding="utf-8"))["version"] != VERSION:
        command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"]
        done = subprocess.run(
            [*command, f"{PACKAGE}@{VERSION}"], capture_output=True, text=True, timeout=300, cwd=folder
        )
        if done.returncode != 0 and any(code in done.stderr for code in UNREACHABLE):
            pytest.skip("npm reaches no registry, and the package is not in its cache")
        assert done.returncode == 0, f"npm could not install {PACKAGE} {VERSION}:\n{done.stderr}"
    return folder


def test_the_example_of_the_guide_streams_an_answer_with_its_citation(
    http_daemon: RunningDaemon, project: Path
) -> None:
    (program,) = examples("js")
    file = project / "example.mjs"
    file.write_text(program.replace("http://127.0.0.1:7480", http_daemon.http), encoding="utf-8")
    done = subprocess.run(["node", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "2,000 operating hours" in done.stdout
    (place, *_) = [line for line in done.stdout.splitlines() if f"{http_daemon.http}/documents/" in line]
    assert place.startswith("lubrication-schedule.md ")
