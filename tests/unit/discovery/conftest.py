"""A network of three machines; tests that need one are skipped where none can be made."""

from collections.abc import Iterator

import pytest

from tests.support.network_namespaces import Machine, machines_of_a_network


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    with machines_of_a_network(3) as machines:
        yield machines
