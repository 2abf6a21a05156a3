"""One daemon at a time holds a Unix socket, and a killed one leaves nothing in the way."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from edge_rag.errors import ConfigurationError
from edge_rag.server.grpc.unix_socket import UnixSocket, answers

HOLD = """
import socket, sys, time
from pathlib import Path
from edge_rag.server.grpc.unix_socket import UnixSocket
held = UnixSocket(Path(sys.argv[1]))
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("listening", flush=True)
time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "edge-rag.sock"


def test_the_socket_of_a_living_process_is_kept_and_that_of_a_killed_one_is_removed(path: Path) -> None:
    living = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert living.stdout is not None
        assert living.stdout.readline() == "listening\n"
        with pytest.raises(ConfigurationError, match="another daemon listens"):
            UnixSocket(path)
        assert answers(path, 10)
    finally:
        living.kill()
        living.communicate()
    assert path.is_socket()
    assert not answers(path, 10)
    held = UnixSocket(path)
    assert not path.exists()
    held.release()
    held.release()
    assert list(path.parent.iterdir()) == []


def test_the_socket_of_a_living_program_without_a_lock_is_kept(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ConfigurationError, match="another program listens"):
            UnixSocket(path)
        assert answers(path, 10)
    UnixSocket(path).release()


def test_a_file_that_is_no_socket_is_kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("a note")
    with pytest.raises(ConfigurationError, match="not a socket"):
        UnixSocket(path)
    assert path.read_text() == "a note"


def test_a_folder_that_cannot_be_used_is_named(path: Path) -> None:
    path.parent.write_text("not a folder")
    with pytest.raises(ConfigurationError, match=r"edge-rag\.sock cannot be used"):
        UnixSocket(path)


def test_only_its_owner_may_use_a_private_socket(path: Path) -> None:
    before = os.umask(0o022)
    try:
        server = grpc.server(None)  # type: ignore[arg-type]  # serves no calls
        held = UnixSocket(path)
        held.bind(server.add_insecure_port, private=True)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
