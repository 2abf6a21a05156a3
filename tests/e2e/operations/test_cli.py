import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import click
import grpc
import pytest
from click.testing import CliRunner, Result

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import SAMPLES, RunningDaemon, ingest

GREASING = "The pump bearings must be greased every 2,000 operating hours or every three months, whichever comes first."


def edge_rag(daemon: RunningDaemon, *arguments: str, given: str | None = None) -> Result:
    return CliRunner(env={"EDGE_RAG_SERVER": daemon.address}).invoke(main, arguments, input=given)


@pytest.mark.smoke
def test_the_greasing_question_is_answered_with_the_sentence_and_its_source(daemon: RunningDaemon) -> None:
    result = edge_rag(daemon, "ask", "-v", "How often must the pump bearings be greased?")
    assert result.exit_code == 0
    assert GREASING in result.stdout
    assert "[1] lubrication-schedule.md, line 7, Lubrication schedule › Pumps P1, P2 and P3\n" in result.stdout
    assert "retriever" in result.stderr


@pytest.mark.parametrize(
    ("question", "document", "words"),
    [
        ("What is the limit of chlorine in the air?", "safety-sheet-sodium-hypochlorite.pdf", "0.5 ppm"),
        ("How long is the rising main?", "", "2,340 metres"),
        ("When are samples of the wastewater taken?", "water-sampling.md", "every Tuesday"),
        ("How many times an hour may a pump be started?", "start-up-and-shut-down.md", "six times an hour"),
        ("What is the telephone extension of the duty electrician?", "", "214"),
        ("Why was the drive end bearing of pump P1 replaced?", "maintenance-log.txt", "92 degrees"),
    ],
)
def test_facts_of_the_site_are_found_in_every_format(
    daemon: RunningDaemon, question: str, document: str, words: str
) -> None:
    answer = json.loads(edge_rag(daemon, "ask", "--json", "--sentences", "2", question).stdout)
    assert words in answer["answer"]
    assert document in {citation["document"] for citation in answer["citations"]} or not document


def test_a_citation_is_the_range_of_the_stored_text_it_names(daemon: RunningDaemon) -> None:
    asked = edge_rag(daemon, "ask", "--json", "--sentences", "3", "What must be worn when handling hypochlorite?")
    answer = json.loads(asked.stdout)
    assert answer["citations"]
    for citation in answer["citations"]:
        shown = edge_rag(daemon, "docs", "show", "--json", citation["document"])
        stored = json.loads(shown.stdout)["text"]
        assert stored[citation["start"] : citation["end"]] == citation["text"]


@pytest.mark.smoke
def test_a_document_comes_is_found_and_goes(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "canteen.md").write_text("# Canteen\n\nThe canteen serves lentil soup on Thursdays.\n")
    in_collection = ("--collection", "canteen")
    assert edge_rag(daemon, "ingest", *in_collection, str(tmp_path)).exit_code == 0
    asked = edge_rag(daemon, "ask", *in_collection, "When is there lentil soup?")
    assert "The canteen serves lentil soup on Thursdays." in asked.stdout
    assert edge_rag(daemon, "docs", "delete", *in_collection, "canteen.md").exit_code == 0
    assert edge_rag(daemon, "docs", "show", *in_collection, "canteen.md").exit_code == 4


def test_half_a_document_is_rejected_and_the_stored_one_stays(daemon: RunningDaemon) -> None:
    whole = b"# Valve\n\nThe valve V-7 opens to the left.\n"
    assert ingest(daemon.address, {"valve.md": whole}, "halves")[0].status == documents_pb2.INGEST_STATUS_ADDED
    header = documents_pb2.IngestRequest.Header(collection="halves", name="valve.md", size_bytes=len(whole))
    half = [documents_pb2.IngestRequest(header=header), documents_pb2.IngestRequest(content=whole[:20])]
    with grpc.insecure_channel(daemon.address) as channel:
        documents = documents_pb2_grpc.DocumentsStub(channel)
        outcome = documents.Ingest(iter(half), timeout=60).outcomes[0]
        stored = documents.Get(documents_pb2.GetDocumentRequest(collection="halves", document="valve.md"), timeout=60)
    assert outcome.status == documents_pb2.INGEST_STATUS_REJECTED
    assert "were announced" in outcome.reason
    assert "opens to the left" in stored.text


def test_the_place_of_a_citation_is_shown_in_its_text_and_opened_in_a_browser(
    start: Callable[..., RunningDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def launch(url: str) -> int:
        opened.append(url)
        return 0

    monkeypatch.setattr(click, "launch", launch)
    running = start(config="[http]\naddress = '127.0.0.1:0'\n")
    assert edge_rag(running, "ingest", str(SAMPLES / "lubrication-schedule.md")).exit_code == 0
    asked = edge_rag(running, "ask", "--json", "How often must the pump bearings be greased?")
    citation = json.loads(asked.stdout)["citations"][0]
    place = (citation["document"], "--at", str(citation["start"]))
    shown = edge_rag(running, "docs", "show", *place)
    assert GREASING in next(line for line in shown.stdout.splitlines() if line.startswith("→ "))
    assert edge_rag(running, "docs", "show", citation["document"], "--at", "999999").exit_code == 1
    assert edge_rag(running, "docs", "open", *place).stdout.strip() == opened[0]
    with urlopen(opened[0]) as page:
        assert page.status == 200


def test_a_metadata_field_that_no_document_has_is_named_where_its_filter_finds_nothing(daemon: RunningDaemon) -> None:
    for command in ("search", "ask"):
        nothing = edge_rag(daemon, command, "--filter", "yaer >= 2020 and name ~ 'x*'", "How often is it greased?")
        assert "no document of collection default has the metadata field 'yaer'" in nothing.stderr, nothing.output


@pytest.mark.smoke
def test_status_and_doctor_know_the_daemon(daemon: RunningDaemon) -> None:
    status = json.loads(edge_rag(daemon, "status", "--wait", "30", "--json").stdout)
    assert status["state"] == "serving"
    assert status["collections"]["default"] >= 10
    doctor = edge_rag(daemon, "doctor", "--json")
    checks = {check["name"]: check["verdict"] for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.exit_code == 0
    assert checks["daemon"] == checks["embedder"] == checks["generator"] == "ok"
