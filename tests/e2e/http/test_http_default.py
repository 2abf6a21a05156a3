"""What a daemon does about HTTP when nobody configured it, and that nothing of it is imported when it is off."""

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.core.address import DEFAULT_HTTP_ADDRESS
from tests.e2e.support.running_daemon import RunningDaemon

PACKAGES = ("starlette", "uvicorn", "h11", "mcp", "multipart", "python_multipart", r"edge_rag\.server\.http")
IMPORTED = re.compile(rf"^import time:.*\| +({'|'.join(PACKAGES)})\b", re.MULTILINE)
TELLING = {"PYTHONPROFILEIMPORTTIME": "1"}
"""Makes Python list what it imports in the log."""


def test_the_second_daemon_of_a_host_serves_without_the_port_that_the_first_has(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    first = start(tmp_path / "one", "[http]\n", TELLING)
    assert first.http in (f"http://{DEFAULT_HTTP_ADDRESS}", "")  # another program of this host may have the port
    second = start(tmp_path / "two", "[http]\n")
    assert second.http == ""
    assert re.search(rf"HTTP is not served.*{re.escape(DEFAULT_HTTP_ADDRESS)} cannot be bound", second.log.read_text())
    for running in (first, second):
        status = CliRunner().invoke(main, ["status", "--server", running.address])
        assert status.exit_code == 0, status.output
        assert (f"http         {running.http}" in status.output) == bool(running.http)
    assert IMPORTED.search(first.log.read_text()), "an import of the server is not noticed"


def test_while_http_is_off_a_running_daemon_has_nothing_of_it(start: Callable[..., RunningDaemon]) -> None:
    running = start(config="[http]\nenabled = false\n", environment=TELLING)
    assert "import time:" in running.log.read_text()
    assert not IMPORTED.findall(running.log.read_text())
