"""A network of three machines; tests that need one are skipped where none can be made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.network_namespaces import Machine, Network, NoNamespaces


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    try:
        network = Network(3).__enter__()
    except NoNamespaces as reason:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    try:
        yield network.machines
    finally:
        network.__exit__()
