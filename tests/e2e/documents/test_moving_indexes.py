"""A collection's vectors move to Milvus and back while a daemon answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge_rag.cli.main import main
from edge_rag.client import Client
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.monitoring.status import IndexKind
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

_QUESTION = "How often must the pump bearings be greased?"


def edge_rag(daemon: RunningDaemon, *arguments: str) -> Result:
    return CliRunner(env={"EDGE_RAG_SERVER": daemon.address}).invoke(main, ["collections", *arguments])


def test_a_collection_moves_to_milvus_and_back_and_answers_the_same(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    pytest.importorskip("pymilvus", reason="needs the extra milvus")
    pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    daemon = start(config=f'[retriever.milvus]\nuri = "{tmp_path / "milvus.db"}"\n')
    ingest(daemon.address, sample_documents())

    with Client(daemon.address, timeout_s=120) as client:
        before = client.search(_QUESTION)
        (exact,) = client.status().indexes
        there = edge_rag(daemon, "move", "default", "--to", "milvus", "--json")
        found = client.search(_QUESTION)
        back = client.move_index("default", BackendKind.FAISS)

    assert exact == back
    assert there.exit_code == 0
    moved = json.loads(there.stdout)["index"]
    assert (exact.kind, moved["kind"], moved["vectors"]) == (IndexKind.EXACT, "milvus", exact.vectors)
    assert found.hits == before.hits


def test_the_command_says_where_a_collection_is_and_why_it_cannot_be_elsewhere(
    start: Callable[..., RunningDaemon],
) -> None:
    daemon = start()
    ingest(daemon.address, {"a.txt": b"The bearing of the pump."})

    stays = edge_rag(daemon, "move", "default", "--to", "faiss")
    refused = edge_rag(daemon, "move", "default", "--to", "milvus")

    assert (stays.exit_code, stays.stdout) == (0, "moved  default: exact, 1 vectors\n")
    assert refused.exit_code != 0
    assert "retriever.milvus.uri" in refused.stderr
