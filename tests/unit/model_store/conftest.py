"""A store that tests add models to."""

from pathlib import Path

import pytest

from edge_rag.model_store.directory import StoreDirectory


@pytest.fixture
def store(tmp_path: Path) -> StoreDirectory:
    return StoreDirectory(tmp_path / "store")
