"""Where credentials are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge_rag.config.paths import credential


def test_a_credential_is_returned_only_if_it_is_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert credential("key") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert credential("key") is None
    (tmp_path / "key").write_text("secret")
    assert credential("key") == tmp_path / "key"
    monkeypatch.setattr(os, "access", lambda *_: False)  # systemd 252's folder where it passed no credential at all
    assert credential("key") is None
