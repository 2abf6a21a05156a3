"""The official OpenAI client against a daemon: collections as vector stores, their files and their search."""

import io
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from edge_rag.client import Client
from edge_rag.core.documents.document import IngestStatus
from tests.e2e.support.running_daemon import ROOT, SAMPLES, RunningDaemon, start_daemon

HTTP = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
SEAL = "The seal of the feed pump is replaced every 4,000 operating hours by the second engineer."
OTHERS = {
    "galley.txt": "The galley opens at six in the morning and closes at nine in the evening.",
    "anchor.txt": "The anchor chain is inspected by the bosun before the ship leaves the harbour.",
    "paint.txt": "The hull is painted with two coats of red antifouling paint in the dry dock.",
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with start_daemon(folder / "data", folder / "log", HTTP) as running:
        yield running


@pytest.fixture(scope="module")
def http_daemon(daemon: RunningDaemon) -> RunningDaemon:
    """The daemon that the clients call."""
    return daemon


def put(ours: Client, collection: str, name: str, text: str, metadata: dict[str, object]) -> None:
    outcome = ours.ingest(name, lambda: io.BytesIO(text.encode()), collection=collection, metadata=metadata)
    assert outcome.status is IngestStatus.ADDED


@pytest.fixture(scope="module")
def searched(daemon: RunningDaemon) -> str:
    """A collection in which a question has one answer, with metadata."""
    with Client(daemon.address) as ours:
        put(ours, "searched", "pump.txt", SEAL, {"part": "pump", "year": 2020})
        for year, (name, text) in enumerate(OTHERS.items(), start=2021):
            put(ours, "searched", name, text, {"part": "deck", "year": year})
    return "searched"


def test_a_store_is_made_changed_and_deleted(client: Any) -> None:
    made = client.vector_stores.create(
        name="Boiler house",
        description="All of it",
        metadata={"site": "north"},
        chunking_strategy={"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}},
    )
    assert (made.id, made.name, made.status) == ("boiler-house", "Boiler house", "completed")
    assert (made.metadata, made.usage_bytes, made.file_counts.total) == ({"site": "north"}, 0, 0)
    assert abs(made.created_at - time.time()) < 3600
    changed = client.vector_stores.update(made.id, name="Kesselhaus", metadata={"site": "south", "deck": "2"})
    assert (changed.name, changed.metadata) == ("Kesselhaus", {"site": "south", "deck": "2"})
    assert client.vector_stores.update(made.id, name=None) == changed
    assert client.vector_stores.retrieve(made.id) == changed
    again = client.vector_stores.create(name="Boiler house")
    assert again.id.startswith("boiler-house-")
    for store in (made, again):
        assert client.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError) as error:
        client.vector_stores.retrieve(made.id)
    assert error.value.code == "collection_not_found"


def test_a_legal_name_is_the_id_and_can_be_used_once(client: Any, daemon: RunningDaemon) -> None:
    assert client.vector_stores.create(name="plain").id == "plain"
    with pytest.raises(openai.ConflictError):
        client.vector_stores.create(name="plain")
    with Client(daemon.address) as ours:
        assert ours.collection("plain").kept
    client.vector_stores.delete("plain")
    nameless = client.vector_stores.create()
    assert nameless.name == nameless.id
    client.vector_stores.delete(nameless.id)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("expires_after", {"expires_after": {"anchor": "last_active_at", "days": 3}}),
        ("metadata", {"metadata": {f"k{number}": "v" for number in range(17)}}),
        ("name", {"name": "n" * 257}),
        ("colour", {"extra_body": {"colour": "red"}}),
    ],
)
def test_what_a_store_cannot_have_is_refused_by_its_field(client: Any, field: str, options: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.vector_stores.create(**{"name": "refused", **options})
    assert error.value.param == field
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve("refused")


@pytest.mark.smoke
def test_a_search_finds_the_passage_and_its_place(client: Any, searched: str) -> None:
    page = client.vector_stores.search(searched, query="How often is the seal of the feed pump replaced?")
    best, *others = page.data
    assert (best.filename, best.content[0].text, best.attributes) == ("pump.txt", SEAL, {"part": "pump", "year": 2020})
    scores = [each.score for each in page.data]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert len(others) == len(OTHERS)
    with urllib.request.urlopen(best.model_extra["edge_rag"]["url"], timeout=30) as plain:
        assert plain.read().decode() == SEAL


@pytest.mark.parametrize(
    ("field", "options"),
    [
        (
            "filters.filters[1].value",
            {
                "filters": {
                    "type": "and",
                    "filters": [{"type": "eq", "key": "a", "value": 1}, {"type": "eq", "key": "b", "value": []}],
                }
            },
        ),
        ("max_num_results", {"max_num_results": 51}),
        ("ranking_options.ranker", {"ranking_options": {"ranker": "default-2024-11-15"}}),
        ("ranking_options.score_threshold", {"ranking_options": {"score_threshold": 1.5}}),
        ("rewrite_query", {"rewrite_query": True}),
        ("query", {"query": ["one question", "and another"]}),
        ("query", {"query": " "}),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_by_its_field(
    client: Any, searched: str, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.vector_stores.search(searched, **{"query": "the ship", **options})
    assert error.value.param == field


def test_a_file_can_be_read_described_anew_and_removed(client: Any, daemon: RunningDaemon) -> None:
    with Client(daemon.address) as ours:
        put(ours, "described", "pump.txt", SEAL, {"part": "pump"})
        put(ours, "described", "paint.txt", OTHERS["paint.txt"], {"part": "deck"})
    files = client.vector_stores.files
    paint, pump = files.list("described").data
    assert (pump.status, pump.attributes, pump.last_error) == ("completed", {"part": "pump"}, None)
    assert files.retrieve(pump.id, vector_store_id="described") == pump
    assert "".join(part.text for part in files.content(pump.id, vector_store_id="described")) == SEAL

    changed = files.update(pump.id, vector_store_id="described", attributes={"part": "valve", "year": 2024})
    assert changed.attributes == {"part": "valve", "year": 2024}
    wanted = {"type": "eq", "key": "part", "value": "valve"}
    assert [each.file_id for each in client.vector_stores.search("described", query="seal", filters=wanted)] == [
        pump.id
    ]
    with pytest.raises(openai.BadRequestError) as error:
        files.update(pump.id, vector_store_id="described", attributes={"Part": "valve"})
    assert error.value.param == "attributes['Part']"

    assert files.delete(pump.id, vector_store_id="described").deleted
    with pytest.raises(openai.NotFoundError):
        files.retrieve(pump.id, vector_store_id="described")
    assert [file.id for file in files.list("described")] == [paint.id]


def test_a_text_that_is_longer_than_one_part_comes_whole(client: Any, daemon: RunningDaemon) -> None:
    words = " ".join(chr(ord("a") + number % 26) * 2_000 for number in range(140))
    with Client(daemon.address) as ours:
        put(ours, "long", "log.txt", words, {})
    (file,) = client.vector_stores.files.list("long").data
    parts = [part.text for part in client.vector_stores.files.content(file.id, vector_store_id="long")]
    assert len(parts) > 1
    assert "".join(parts) == words


def folder_files() -> dict[str, Path]:
    found = {path.name: path for path in sorted(SAMPLES.rglob("*")) if path.is_file()}
    assert len(found) > 2
    return found


def test_a_folder_is_ingested_file_by_file_and_searched(client: Any, daemon: RunningDaemon) -> None:
    store = client.vector_stores.create(name="Sample documents")
    attached = {}
    for name, path in folder_files().items():
        with path.open("rb") as file:
            attached[name] = client.vector_stores.files.upload_and_poll(
                vector_store_id=store.id, file=file, attributes={"origin": "samples", "file": name}
            )
    assert {file.status for file in attached.values()} == {"completed"}
    counts = client.vector_stores.retrieve(store.id).file_counts
    assert (counts.completed, counts.total) == (len(attached), len(attached))
    best = client.vector_stores.search(store.id, query="How often must the pump bearings be greased?").data[0]
    assert "2,000 operating hours" in best.content[0].text
    assert best.file_id == attached[best.filename].id
    assert (best.attributes["origin"], best.attributes["file"]) == ("samples", best.filename)
    assert client.files.retrieve(best.file_id).filename == best.filename
    other = next(name for name in attached if name != best.filename)
    wanted = {"type": "eq", "key": "file", "value": other}
    found = client.vector_stores.search(store.id, query="How often must it be greased?", filters=wanted)
    assert {each.filename for each in found} <= {other}
    answer = client.chat.completions.create(
        model=f"edge-rag/{store.id}",
        messages=[{"role": "user", "content": "How often must the pump bearings be greased?"}],
    )
    assert "2,000 operating hours" in answer.choices[0].message.content

    removed = attached[best.filename].id
    client.vector_stores.files.delete(removed, vector_store_id=store.id)
    assert removed not in [file.id for file in client.vector_stores.files.list(store.id)]
    assert client.files.content(removed).read() == folder_files()[best.filename].read_bytes()
    again = client.vector_stores.files.create_and_poll(removed, vector_store_id=store.id)
    assert again.status == "completed"


@pytest.mark.smoke
def test_a_batch_is_uploaded_at_once_and_each_file_says_what_became_of_it(client: Any) -> None:
    store = client.vector_stores.create(name="batch")
    files = [(name, path.read_bytes()) for name, path in folder_files().items()]
    broken = ("broken.pdf", b"%PDF-1.7 this is no PDF")
    foreign = ("film.mp4", b"\x00\x00\x00\x18ftypmp42" + bytes(64))
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=[*files, broken, foreign])
    assert (batch.status, batch.object) == ("completed", "vector_store.files_batch")
    counts = batch.file_counts
    assert (counts.completed, counts.failed, counts.in_progress) == (len(files), 2, 0)
    listed = list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, limit=2))
    assert len(listed) == counts.total == len(files) + 2
    failed = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, filter="failed")
    errors = {client.files.retrieve(file.id).filename: file.last_error for file in failed}
    assert {name: error.code for name, error in errors.items()} == {
        "broken.pdf": "invalid_file",
        "film.mp4": "unsupported_file",
    }
    assert all(len(error.message) > 10 for error in errors.values())
    assert client.vector_stores.retrieve(store.id).file_counts.failed == 2
    retrieved = client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id)
    assert client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id) == retrieved
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.file_batches.retrieve(batch.id, vector_store_id="nothing")
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.file_batches.retrieve("nothing", vector_store_id=store.id)


def uploaded(client: Any, name: str, content: bytes) -> str:
    return str(client.files.create(file=(name, content), purpose="assistants").id)


def test_a_batch_can_be_cancelled_while_its_files_wait(client: Any) -> None:
    long = " ".join(f"Line {number} of this log says that pump {number} ran." for number in range(400))
    ids = [uploaded(client, f"log-{number}.txt", f"{number} {long}".encode()) for number in range(6)]
    batch = client.vector_stores.file_batches.create("cancelled", file_ids=ids)
    ended = client.vector_stores.file_batches.cancel(batch.id, vector_store_id="cancelled")
    counts = ended.file_counts
    assert (ended.status, counts.in_progress, counts.failed) == ("cancelled", 0, 0)
    assert counts.cancelled > 0
    assert counts.cancelled + counts.completed == len(ids)
    left = client.vector_stores.file_batches.list_files(batch.id, vector_store_id="cancelled", filter="cancelled")
    assert {file.last_error for file in left} == {None}
    assert all(client.files.retrieve(file.id) for file in left), "the files stay"


def test_whoever_waits_learns_when_to_ask_again(client: Any) -> None:
    batches = client.vector_stores.file_batches
    ids = [uploaded(client, f"{number}.txt", f"{SEAL} {number}".encode()) for number in range(8)]
    first = batches.with_raw_response.create("asked", file_ids=ids)
    batch = batches.poll(first.parse().id, vector_store_id="asked")
    assert (batch.status, batch.file_counts.completed) == ("completed", len(ids))
    last = batches.with_raw_response.retrieve(batch.id, vector_store_id="asked")
    for raw in (first, last):
        waits = raw.headers.get("openai-poll-after-ms")
        assert (raw.parse().status == "in_progress") == (waits is not None)
        assert waits is None or 100 <= int(waits) <= 2000


def test_the_example_of_the_guide_runs(daemon: RunningDaemon, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "http.md").read_text(encoding="utf-8")
    section = guide.split("## Collections as vector stores")[1]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    (tmp_path / "manuals").mkdir()
    for name in ("lubrication-schedule.md", "alarm-list.html"):
        (tmp_path / "manuals" / name).write_bytes((SAMPLES / name).read_bytes())
    program = example[1].replace("http://127.0.0.1:7480", daemon.http)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "alarm-list.html completed" in done.stdout
    assert re.search(r"^[01]\.\d\d lubrication-schedule.md .", done.stdout, re.MULTILINE)
