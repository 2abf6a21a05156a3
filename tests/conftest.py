"""For all tests."""

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and what the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
