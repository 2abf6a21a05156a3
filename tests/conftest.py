"""For all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: whether a change may land must not depend on a draw. Run with
# --hypothesis-profile=explore to look for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and what the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def npu_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what is compiled for the NPU, shared by all tests."""
    return tmp_path_factory.mktemp("compiled")
