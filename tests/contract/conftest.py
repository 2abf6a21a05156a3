"""What the clients' suites share with the command line's tests."""

from tests.unit.cli.conftest import scripted, start_server

__all__ = ["scripted", "start_server"]
