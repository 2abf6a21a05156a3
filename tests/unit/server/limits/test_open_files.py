"""The limit of open files, in a process of its own: a lowered hard limit cannot be raised again."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "expected"),
    [(1024, 4096, 1024, 1536), (1024, 1200, 1024, 1200), (4096, 4096, 1024, 4096), (1024, 4096, 100, 1024)],
)
def test_the_limit_is_raised_as_far_as_the_system_allows(soft: int, hard: int, connections: int, expected: int) -> None:
    script = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from edge_rag.server.limits.transport import raise_file_limit\n"
        f"assert raise_file_limit({connections}) == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == {expected}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("LimitNOFILE" in done.stdout) == (expected < connections + 512 and expected == hard)
