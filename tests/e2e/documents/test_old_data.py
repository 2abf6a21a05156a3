"""A data directory of any earlier schema is opened by today's daemon, and nothing of it is lost.

``tests/fixtures/makers/make_old_data.py`` writes each archive with the last code of its schema.
"""

import hashlib
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from edge_rag.cli.main import main
from edge_rag.client import Client, SearchOptions
from edge_rag.core.documents.jobs import JobState
from edge_rag.core.placement import ModelStage
from edge_rag.model_store.store import read_choices
from edge_rag.storage.database import load_page_checksums
from edge_rag.storage.migrations import NEWEST_SCHEMA
from tests.e2e.support.running_daemon import ROOT, RunningDaemon
from tests.support.old_data import unpack

ARCHIVES = ROOT / "tests" / "fixtures" / "data-directories"
SCHEMAS = range(1, NEWEST_SCHEMA + 1)
BACKUP = ROOT / "tests" / "fixtures" / "backups" / "schema-9.edge-rag.xz"
"""What the backup command of commit c9adc14 made of the archive of schema 9."""
JOBS_SINCE = 5
NEWEST_WITHOUT_EMBEDDER = 11
"""The newest one of which the archive names no embedder."""


def unpacked(schema: int, into: Path) -> tuple[Path, dict[str, Any]]:
    unpack(ARCHIVES / f"schema-{schema}.tar.xz", into)
    return into / "data", json.loads((into / "expected.json").read_text())


def edge_rag(*arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.smoke
def test_there_is_a_data_directory_of_every_earlier_schema() -> None:
    there = {int(path.name.removeprefix("schema-").removesuffix(".tar.xz")) for path in ARCHIVES.iterdir()}
    assert set(range(1, NEWEST_SCHEMA)) <= there, "see tests/fixtures/makers/make_old_data.py"


@pytest.mark.parametrize("schema", [schema for schema in SCHEMAS if (ARCHIVES / f"schema-{schema}.tar.xz").exists()])
def test_all_that_an_earlier_version_stored_is_there_and_found(
    start: Callable[..., RunningDaemon], tmp_path: Path, schema: int
) -> None:
    data, expected = unpacked(schema, tmp_path)
    assert expected["schema"] == schema
    daemon = start(data, models={"embedder": "minilm-l6"})
    with Client(daemon.address, timeout_s=120) as client:
        assert {model.placement.stage for model in client.status().models} == {ModelStage.EMBEDDER, ModelStage.RERANKER}
        await_vectors(client)
        jobs = client.jobs()
        assert bool(jobs) == bool(expected["waiting"])
        for job in jobs:
            *_, last = client.watch_job(job.job_id)
            assert last.job.state is JobState.FINISHED
        held = {place: documents | {} for place, documents in expected["documents"].items()}
        texts = {place: {name: one["text"] for name, one in documents.items()} for place, documents in held.items()}
        texts["default"] |= {name: text.strip() for name, text in expected["waiting"].items()}
        assert {info.name for info in client.collections()} == set(texts)
        for place, documents in texts.items():
            infos = {info.name: info for info in client.documents(collection=place)}
            stored = {name: client.document(name, collection=place).text for name in infos}
            assert stored == documents
            for name, record in held[place].items():
                info = infos[name]
                assert (info.document_id, info.sha256, info.chunks) == (
                    record["id"],
                    record["sha256"],
                    record["chunks"],
                )
                assert info.metadata == record.get("metadata", {})
                first = sentence(record["text"])
                for rerank in (False, True):
                    options = SearchOptions(collection=place, limit=1, rerank=rerank, explain=True)
                    found = client.search(first, options)
                    assert found.hits[0].document == name
                    assert found.explanations[0].dense_rank is not None
                    assert found.explanations[0].lexical_rank is not None
                for other in texts.keys() - {place}:
                    away = client.search(first, SearchOptions(collection=other, explain=True))
                    assert {hit.document for hit in away.hits} <= texts[other].keys()
        assert not any("withdrawn" in hit.text for hit in client.search("The limit is withdrawn").hits)
    tokens = edge_rag("token", "list", "--data-dir", str(data))["tokens"]
    assert [token["name"] for token in tokens] == expected["tokens"]
    # The generator that came along with the versions that wrote these is ignored, which is said once.
    choices = expected.get("choices") or {"generator": expected["generator"]}
    assert {role.value: name for role, name in read_choices(data / "models").items()} == choices
    assert daemon.log.read_text().count("no longer comes along") == ("generator" in choices)


def test_a_backup_that_an_earlier_version_made_is_restored_and_served(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    _, expected = unpacked(9, tmp_path)
    backup, data = tmp_path / "before.edge-rag", tmp_path / "restored"
    backup.write_bytes(lzma.decompress(BACKUP.read_bytes()))
    edge_rag("restore", str(backup), "--data-dir", str(data))
    texts = {place: {name: one["text"] for name, one in held.items()} for place, held in expected["documents"].items()}
    texts["default"] |= {name: text.strip() for name, text in expected["waiting"].items()}
    with Client(start(data).address, timeout_s=120) as client:
        for place, documents in texts.items():
            names = [info.name for info in client.documents(collection=place)]
            assert {name: client.document(name, collection=place).text for name in names} == documents


def await_vectors(client: Client) -> None:
    """Waits until all passages have vectors of the daemon's embedder."""
    next(report for report in client.watch_status(0.1) if not any(index.pending for index in report.indexes))


def test_a_library_moves_to_another_embedder_while_it_answers_and_back_if_told(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    data, expected = unpacked(NEWEST_WITHOUT_EMBEDDER, tmp_path)
    text = expected["documents"]["default"]
    stays = '[models]\nembedder = "minilm-l6"\n'
    for config, embedder in ((stays, "minilm-l6"), ("", "multilingual-e5-small"), (stays, "minilm-l6")):
        daemon = start(data, config=config, models={})
        with Client(daemon.address, timeout_s=120) as client:
            status = client.status()
            assert status.models[0].name == embedder
            if daemon.log.name == "log-0":
                assert not any(index.pending for index in status.indexes)
            for renewed in (False, True):
                if renewed:
                    await_vectors(client)
                for name, record in text.items():
                    found = client.search(sentence(record["text"]), SearchOptions(limit=1, explain=True))
                    assert found.hits[0].document == name
                    assert found.explanations[0].lexical_rank is not None
                    assert not renewed or found.explanations[0].dense_rank is not None
        daemon.stop()


def sentence(text: str) -> str:
    return text.rstrip(".").split(".")[-1] if text.count(".") == 1 else text.split("\n")[-1]


@pytest.mark.parametrize("file", ["documents", "tokens", "choices"])
def test_what_a_newer_version_wrote_is_refused_and_left_as_it_is(tmp_path: Path, file: str) -> None:
    data, _ = unpacked(NEWEST_SCHEMA - 1 if file == "documents" else 7, tmp_path)
    match file:
        case "documents":
            load_page_checksums()
            with closing(apsw.Connection(str(data / "documents.sqlite3"))) as connection:
                connection.pragma("user_version", NEWEST_SCHEMA + 1)
        case "tokens":
            as_if_newer(data / "access" / "tokens.json")
        case "choices":
            as_if_newer(data / "models" / "choices.json")
    before = digests(data)

    command = [sys.executable, "-m", "edge_rag.cli.main", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)]
    if file == "tokens":
        command = [sys.executable, "-m", "edge_rag.cli.main", "token", "create", "--name", "x", "--data-dir", str(data)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert done.returncode not in (0, -9)
    assert "newer edge-rag" in done.stderr
    assert digests(data) == before


def as_if_newer(file: Path) -> None:
    written = json.loads(file.read_text())
    file.write_text(json.dumps(written | {"format": written["format"] + 1}))


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "lock"))
    }
