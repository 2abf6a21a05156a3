"""For all tests."""

import json
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

# The same examples in every run: whether a change may land must not depend on a draw. Run with
# --hypothesis-profile=explore to look for new ones.
settings.register_profile("everyday", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("thorough", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("everyday")

_LONGEST: Final = (
    "test_sanitized_ops.py",
    "test_kernels_alone.py",
    "test_upload_memory.py",
    "test_killing_the_daemon.py",
    "test_limits.py",
    "test_generator_contract.py",
    "test_reranker_contract.py",
    "test_paged_attention.py",
    "test_engine.py",
    "test_hostile_files.py",
    "test_pathological_files.py",
    "test_mcp.py",
    "test_parser_process.py",
)
"""Files that take longest, which begin first, so that no process is left alone with one in the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", metavar="FILE", type=Path, help="append a line of JSON for each failure")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and what the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = config.getoption("failures")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(path))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _LONGEST.index(name) if (name := item.path.name) in _LONGEST else len(_LONGEST))


class _Failures:
    """What ``scripts/run_again.py`` reads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._path.open("a") as file:
                file.write(json.dumps({"test": report.nodeid, "text": report.longreprtext}) + "\n")


@pytest.fixture(scope="session")
def npu_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what is compiled for the NPU, shared by all tests."""
    return tmp_path_factory.mktemp("compiled")
