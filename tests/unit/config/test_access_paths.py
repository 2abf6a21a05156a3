import os
import socket
from pathlib import Path

import pytest

from edge_rag.config.paths import SERVICE_SOCKET, credential, socket_path


def test_a_credential_is_returned_only_if_it_is_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert credential("key") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert credential("key") is None
    (tmp_path / "key").write_text("secret")
    assert credential("key") == tmp_path / "key"
    monkeypatch.setattr(os, "access", lambda *_: False)  # systemd 252's folder where it passed no credential at all
    assert credential("key") is None


def test_a_daemon_has_its_socket_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    data, deep, deeper = Path("/data"), Path("/" + "d" * 100), Path("/" + "d" * 101)
    assert socket_path(data) == Path("/data/edge-rag.sock")
    assert socket_path(deep) is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert socket_path(data) == Path("/data/edge-rag.sock")
    there = {socket_path(deep), socket_path(deeper)}
    assert len(there) == 2
    assert {path.parent for path in there if path is not None} == {Path("/run/user/7")}
    with socket.socket(socket.AF_UNIX) as longest:
        longest.bind(str(tmp_path / ("s" * (107 - len(str(tmp_path)) - 1))))
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/edge-rag:/run/other")
    assert socket_path(deep) == SERVICE_SOCKET
