"""Collections over real gRPC: made, listed, changed, kept when empty, and gone with all that was in them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from google.protobuf.field_mask_pb2 import FieldMask

from edge_rag.api.v1 import collections_pb2, collections_pb2_grpc, metadata_pb2
from edge_rag.cli.main import main
from edge_rag.client import AskOptions, CallStatus, Client, ClientError, SearchOptions
from edge_rag.core.answer import Finished, TextDelta
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.ids import require_recognized
from edge_rag.core.query import AnswerMode, KvReuse
from tests.e2e.support.running_daemon import RunningDaemon, status_of
from tests.e2e.support.stored_files import stored_files

_LONG = "# Pump\n\n" + " ".join(
    f"Sentence {n} of the manual says what is to be done with valve {n}." for n in range(60)
)


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[Client]:
    with Client(daemon.address) as client:
        before = {info.name for info in client.collections()}
        yield client
        for info in client.collections():
            if info.name not in before:
                client.delete_collection(info.name)


def put(
    client: Client, collection: str, name: str = "a.md", text: str = "The seal is checked each week."
) -> IngestStatus:
    return require_recognized(client.ingest(name, lambda: io.BytesIO(text.encode()), collection=collection).status)


def test_a_created_collection_stays_when_it_is_empty_and_one_of_ingest_goes(client: Client) -> None:
    made = client.create_collection("kept", CollectionSettings(description="What stays"))
    assert (made.name, made.documents, made.kept, made.created_at is not None) == ("kept", 0, True, True)
    assert client.search("seal", SearchOptions(collection="kept")).hits == ()
    for name in ("kept", "passing"):
        assert put(client, name) is IngestStatus.ADDED
        client.delete("a.md", collection=name)

    assert client.collection("kept") == made
    assert "kept" in client.status().collections
    with pytest.raises(ClientError) as refused:
        client.collection("passing")
    assert refused.value.status is CallStatus.NOT_FOUND


def test_only_where_it_is_chosen_answers_are_approximations_and_they_say_so(client: Client) -> None:
    for name, reuse in (("exact", KvReuse.EXACT), ("approximate", KvReuse.PASSAGE)):
        client.create_collection(name, CollectionSettings(kv_reuse=reuse))
        for part in ("pump", "valve", "boiler"):
            text = (
                f"The {part} is checked each week by the second engineer. " * 2 + f"It stands beside the {part} house."
            )
            assert put(client, name, f"{part}.md", text) is IngestStatus.ADDED
        finished = list(
            client.ask("When is the pump checked?", AskOptions(collection=name, mode=AnswerMode.FREE, max_tokens=8))
        )[-1]
        assert isinstance(finished, Finished)
        assert (finished.usage.copied_prompt_tokens > 0) == (reuse is KvReuse.PASSAGE)


def test_settings_make_a_collection_of_ingest_stay(client: Client) -> None:
    put(client, "grown")
    client.update_collection("grown", CollectionSettings(description="x"), {"description"})
    client.delete("a.md", collection="grown")

    assert client.collection("grown").documents == 0


def test_the_size_of_chunks_is_the_collections_own_and_reingesting_cuts_anew(client: Client) -> None:
    client.create_collection("small", CollectionSettings(chunk_tokens=32))
    put(client, "small", text=_LONG)
    put(client, "usual", text=_LONG)
    small, usual = client.collection("small").chunks, client.collection("usual").chunks
    assert small > 2 * usual

    assert put(client, "small", text=_LONG) is IngestStatus.UNCHANGED
    client.update_collection("small", CollectionSettings(), {"chunk_tokens"})
    assert put(client, "small", text=_LONG) is IngestStatus.REPLACED
    assert client.collection("small").chunks == usual


def test_deleting_a_collection_leaves_nothing_of_it(client: Client, daemon: RunningDaemon, tmp_path: Path) -> None:
    client.create_collection("gone")
    put(client, "gone", text="The combination is quagmire xylophone.")
    removed = client.delete_collection("gone")

    assert (removed.documents, removed.chunks) == (1, 1)
    for call in (lambda: client.collection("gone"), lambda: client.search("x", SearchOptions(collection="gone"))):
        with pytest.raises(ClientError, match="'gone' does not exist"):
            call()
    for file in stored_files(daemon.data_dir, tmp_path / "compact.sqlite3"):
        content = file.read_bytes().lower()
        assert b"quagmire" not in content, file
    assert client.create_collection("gone").documents == 0
    assert client.search("quagmire", SearchOptions(collection="gone")).hits == ()


def _settings(**fields: object) -> collections_pb2.CollectionSettings:
    return collections_pb2.CollectionSettings(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (_settings(chunk_tokens=8), "settings.chunk_tokens"),
        (_settings(description="x" * 5000), "settings.description"),
        (_settings(fusion=collections_pb2.Fusion(dense=-1)), "settings.fusion.dense"),
        (_settings(fusion=collections_pb2.Fusion(k=0)), "settings.fusion.k"),
        (_settings(fusion=collections_pb2.Fusion(dense=0, lexical=0)), "settings.fusion"),
        (_settings(recency=collections_pb2.RecencyBoost(field="a")), "settings.recency.half_life_days"),
        (_settings(recency=collections_pb2.RecencyBoost(field="A", half_life_days=1)), "settings.recency.field"),
        (_settings(boosts=[collections_pb2.ValueBoost(field="a", factor=2)]), "settings.boosts[0].value"),
        (
            _settings(
                boosts=[
                    collections_pb2.ValueBoost(field="a", factor=0, value=metadata_pb2.MetadataValue(number=1)),
                ]
            ),
            "settings.boosts[0].factor",
        ),
    ],
)
def test_unusable_settings_are_refused_by_field(
    daemon: RunningDaemon, settings: collections_pb2.CollectionSettings, field: str
) -> None:
    request = collections_pb2.CreateCollectionRequest(name="refused", settings=settings)
    with grpc.insecure_channel(daemon.address) as channel, pytest.raises(grpc.RpcError) as refused:
        collections_pb2_grpc.CollectionsStub(channel).Create(request, timeout=30)

    code, details = status_of(refused.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith(f"{field}: ")


@pytest.mark.smoke
def test_a_question_finds_what_is_written_with_a_synonym(client: Client) -> None:
    settings = CollectionSettings(synonyms="UPS = uninterruptible power supply\n")
    client.create_collection("site", settings)
    put(client, "site", "power.md", "The uninterruptible power supply is tested every six months.")
    put(client, "site", "pump.md", "The pump is tested every two weeks.")
    found = client.search("how often is the UPS tested", SearchOptions(collection="site"))
    answer = [*client.ask("how often is the UPS tested", AskOptions(collection="site", mode=AnswerMode.QUOTE))]

    assert "uninterruptible" in found.hits[0].text
    assert found.did_you_mean is None
    assert "every six months" in "".join(event.text for event in answer if isinstance(event, TextDelta))
    with pytest.raises(ClientError, match=r"settings\.synonyms: line 2 is not") as refused:
        client.update_collection("site", CollectionSettings(synonyms="a = b\nc"), {"synonyms"})
    assert refused.value.status is CallStatus.INVALID_ARGUMENT
    assert client.collection("site").settings == settings


def test_a_field_that_settings_lack_is_refused(client: Client, daemon: RunningDaemon) -> None:
    client.create_collection("once")
    request = collections_pb2.UpdateCollectionRequest(name="once", update_mask=FieldMask(paths=["colour"]))
    with grpc.insecure_channel(daemon.address) as channel, pytest.raises(grpc.RpcError) as unknown:
        collections_pb2_grpc.CollectionsStub(channel).Update(request, timeout=30)
    assert status_of(unknown.value)[1].startswith("update_mask: 'colour'")


@pytest.mark.smoke
def test_the_command_line_does_it_all(client: Client, daemon: RunningDaemon, tmp_path: Path) -> None:
    def run(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(main, ["collections", *arguments, "--server", daemon.address], input=answer)

    made = run("create", "cli", "--description", "Boiler", "--boost", "source=official", "2", "--json")
    assert json.loads(made.stdout)["collection"]["settings"]["boosts"] == [
        {"key": "source", "value": "official", "factor": 2.0}
    ]
    assert run("update", "cli").exit_code == 2
    labelled = run("update", "cli", "--title", "Boiler house", "--label", "site=north", "--label", "deck=2")
    assert "title: Boiler house\n" in labelled.stdout
    assert "labels: deck 2, site north\n" in labelled.stdout
    assert "labels: -  (default)\n" in run("update", "cli", "--no-labels").stdout
    assert run("update", "cli", "--label", "site").exit_code == 2
    assert run("update", "cli", "--label", "site=north", "--no-labels").exit_code == 2
    synonyms = tmp_path / "synonyms.txt"
    synonyms.write_text("# of the site\nUPS = uninterruptible power supply\n")
    known = run("update", "cli", "--synonyms", str(synonyms), "--json")
    assert json.loads(known.stdout)["collection"]["settings"]["synonyms"] == synonyms.read_text()
    assert run("update", "cli", "--synonyms", str(synonyms), "--no-synonyms").exit_code == 2
    synonyms.write_text("UPS = uninterruptible power supply\nscrew\n")
    assert f"{synonyms}: line 2 is not PHRASE = PHRASE" in run("update", "cli", "--synonyms", str(synonyms)).stderr
    assert "synonyms: -  (default)\n" in run("update", "cli", "--no-synonyms").stdout
    reused = run("update", "cli", "--kv-reuse", "passage", "--json")
    assert json.loads(reused.stdout)["collection"]["settings"]["kv_reuse"] == "passage"
    assert "kv_reuse: passage\n" in run("show", "cli").stdout
    assert run("update", "cli", "--recency-field", "created").exit_code == 2
    changed = run("update", "cli", "--recency-half-life", "30", "--recency-field", "created", "--dense-weight", "2")
    assert "recency: key created, half_life_days 30.0, weight 1.0\n" in changed.stdout
    assert "fusion: dense 2.0, lexical 1.0, k 20.0\n" in changed.stdout
    assert "merge_neighbours: false  (default)\n" in run("show", "cli").stdout
    assert "cli  (0 documents, 0 passages)  Boiler\n" in run("list").stdout
    assert run("delete", "cli", answer="n\n").exit_code == 130
    assert run("delete", "cli", "--json").exit_code == 2
    assert run("delete", "cli", answer="y\n").exit_code == 0
    assert run("show", "cli").exit_code == 4
    put(client, "cli")
    assert json.loads(run("delete", "cli", "--yes", "--json").stdout)["deleted"]["documents"] == 1
