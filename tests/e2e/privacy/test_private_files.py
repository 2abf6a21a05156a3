import stat
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from edge_rag.api.v1 import rag_pb2
from edge_rag.cli.main import main
from tests.e2e.answers.test_asking import QUESTIONS, ask
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, sample_documents
from tests.e2e.support.secured_daemon import edge_rag, token

_ASKED = rag_pb2.AskRequest(
    question=QUESTIONS[0], mode=rag_pb2.ANSWER_MODE_FREE, sampling=rag_pb2.Sampling(max_tokens=24)
)
_MADE = ("documents.sqlite3", "lock", "spool", "vectors", "models", "tls", "access/tokens.json")


def open_to_others(folder: Path) -> list[str]:
    """Names of the entries that anybody but their owner has a right to; a symbolic link has no mode of its own."""
    entries = [(path, path.lstat().st_mode) for path in (folder, *folder.rglob("*"))]
    return [str(path) for path, mode in entries if not stat.S_ISLNK(mode) and mode & 0o077]


def test_nothing_in_the_directory_is_open_to_others_before_during_and_after_use(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    token("reader", data)
    edge_rag("pair", "--name", "box", "--address", "127.0.0.1:7421", data=data)
    edge_rag("models", "add", ROOT / "tests" / "fixtures" / "tiny-qwen3", data=data)
    data.chmod(0o755)
    assert open_to_others(data)

    daemon = start(data)
    assert open_to_others(data) == []
    assert "open to other users and is private now" in daemon.log.read_text()
    ingest(daemon.address, sample_documents())
    for _ in range(3):
        ask(daemon.address, _ASKED)
    backup = tmp_path / "a.edge-rag"
    made = CliRunner().invoke(main, ["backup", "--server", daemon.address, str(backup)])
    assert made.exit_code == 0, made.output
    assert open_to_others(data) == []
    assert daemon.stop() == 0
    assert open_to_others(data) == []
    assert [name for name in _MADE if not (data / name).exists()] == []
    assert open_to_others(backup) == []

    edge_rag("restore", "--replace", str(backup), data=data)
    assert open_to_others(data) == []
