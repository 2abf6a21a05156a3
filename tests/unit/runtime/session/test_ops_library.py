"""The op library is found where it was installed, or the error says how to build it."""

from pathlib import Path

import pytest

import edge_rag.ops
from edge_rag.errors import ModelError
from edge_rag.runtime.session.sessions import ops_library


def test_a_missing_library_is_an_error_with_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(edge_rag.ops, "__path__", [str(tmp_path)])
    with pytest.raises(ModelError, match="pip install"):
        ops_library()
